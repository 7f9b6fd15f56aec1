# run · test: each makes what it needs (an environment in .venv, dependencies at the versions of constraints.txt).
# PYTHON=python3.12 picks an interpreter; PIP_FLAGS=… reaches pip (another index for torch, say); LONG=no leaves out the
# tests marked `long`. verify-gpu CARLA=no makes nothing: it takes PYTHON as it is.

PYTHON ?= python3
PIP_FLAGS ?=
LONG ?= yes
CARLA ?= yes
VENV := .venv
BIN := $(VENV)/bin
# Which tests `test` runs; CI names some at a time.
PARTS := lint unit wire stack $(if $(filter no,$(LONG)),,long)

# What each purpose installs: extras of pyproject.toml. mypy reads the tests too, so lint has theirs.
run_NEEDS := agent,lite,launcher,web
test_NEEDS := $(run_NEEDS),view,benchmark,test
lint_NEEDS := $(test_NEEDS),lint
long_NEEDS := $(test_NEEDS),ray
compiled_NEEDS := $(run_NEEDS),compiled
READY_FOR := $(VENV)/ready-for-
PYTEST := $(BIN)/python -m pytest --durations=15 --durations-min=5

.PHONY: run compiled test ready unit wire stack long soak verify-gpu lint clean
.DELETE_ON_ERROR:
.NOTPARALLEL:

run: $(READY_FOR)run  ## train a short run against carla-lite, evaluate it, leave a video and a report
	$(BIN)/python scripts/launch.py up --runtime process --simulator carla-lite --config config/td3_config_quick.yaml --dashboard-port 0

compiled: $(READY_FOR)compiled  ## carla-lite's inner modules as machine code; wants a C compiler and a minute or two
	$(BIN)/python -m carla_lite.compiled

ready: $(READY_FOR)test $(READY_FOR)lint  ## only the environment of every part of `test` that CI runs

test:  ## every test that this machine can run, whatever fails before; says at the end what did
	@failed=; for part in $(PARTS); do $(MAKE) --no-print-directory $$part || failed="$$failed $$part"; done; \
	if [ -n "$$failed" ]; then echo "make test: failed:$$failed" >&2; exit 1; fi; echo "make test: passed: $(PARTS)"

unit: $(READY_FOR)test
	OMP_NUM_THREADS=1 $(PYTEST) -n auto --dist worksteal -m "not long" tests/unit

wire: $(READY_FOR)test
	$(PYTEST) -n 2 --dist worksteal -m "not long" tests/wire tests/soak

stack: $(READY_FOR)test
	$(PYTEST) -m "not long" tests/stack

long: $(READY_FOR)long
	$(PYTEST) -m long tests

soak: $(READY_FOR)test  ## kill learner, simulator and collector at 90 random instants (about half an hour); exit 1 on a loss
	PYTHONPATH=benchmarks $(BIN)/python -m tests.soak $(SOAK_FLAGS)
	$(BIN)/python -m tests.soak.hours

ifeq ($(CARLA),no)
verify-gpu:  ## with a real card and CARLA: everything that needs them; one file to send back. CARLA=no: installs nothing
	$(PYTHON) scripts/verify_gpu.py --no-carla $(VERIFY_FLAGS)
else
verify-gpu: $(READY_FOR)test
	$(BIN)/python scripts/verify_gpu.py $(VERIFY_FLAGS)
endif

lint: $(READY_FOR)lint
	$(BIN)/python -m ruff check .
	$(BIN)/python -m ruff format --check .
	$(BIN)/python -m mypy
	$(BIN)/python -m codespell_lib

clean:  ## the environment and caches, never a run
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis *.egg-info

$(BIN)/python:
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; sys.exit(None if (3, 10) <= v < (3, 13) else \
	f"Python {v[0]}.{v[1]} found, 3.10 to 3.12 needed (the carla client has no other wheels): make $(MAKECMDGOALS) PYTHON=python3.12")'
	$(PYTHON) -m venv $(VENV)

$(READY_FOR)%: pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/python -m pip install -q $(PIP_FLAGS) -c constraints.txt -e '.[$($*_NEEDS)]'
	@touch $@
