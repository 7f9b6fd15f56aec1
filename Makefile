# run · test: each makes what it needs (an environment in .venv, dependencies at the versions of constraints.txt).
# PYTHON=python3.12 picks an interpreter; PIP_FLAGS=… reaches pip (another index for torch, say); PARTS="unit wire" picks
# parts of the tests; RUN_FLAGS="--seed 1" adds options to `run`. verify-gpu CARLA=no makes nothing: it takes PYTHON as it is.

PYTHON ?= python3
PIP_FLAGS ?=
CARLA ?= yes
VENV := .venv
BIN := $(VENV)/bin
# Which parts `test` runs, and `test-all`; CI names some at a time.
PARTS := lint unit wire
test-all: PARTS := lint unit wire stack long
# How long each takes, as it says first: on two cores with AVX2 that do nothing else.
lint_TAKES := about 2 minutes on two cores, seconds with mypy's cache
unit_TAKES := about 5 minutes on two cores
wire_TAKES := about 15 minutes on two cores
stack_TAKES := about 10 minutes on two cores, and the time that a first build of the images takes
long_TAKES := about 40 minutes on two cores

# What each purpose installs beside carla-lite: extras of pyproject.toml. mypy reads the tests too, so lint has theirs.
run_NEEDS := agent,lite,launcher,web
test_NEEDS := $(run_NEEDS),view,benchmark,test
lint_NEEDS := $(test_NEEDS),lint,docs
long_NEEDS := $(test_NEEDS),ray
compiled_NEEDS := $(run_NEEDS),compiled
comma := ,
READY_FOR := $(VENV)/ready-for-
# Without --quiet, which hides warnings from mkdocs' own `strict`, too.
DOCS := NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build
# More options of pytest, for the goals `unit`, `wire` and `stack`. Each goal remembers its own failed tests.
PYTEST_FLAGS :=
PYTEST = $(BIN)/python -m pytest -o cache_dir=.pytest_cache/$@ --durations=15 --durations-min=5

.PHONY: run docs compiled test test-all ready unit wire stack long soak verify-gpu lint clean
.DELETE_ON_ERROR:
.NOTPARALLEL:

run: $(READY_FOR)run  ## train a short run against carla-lite, evaluate it, leave a video and a report
	$(BIN)/python scripts/launch.py up --runtime process --simulator carla-lite --config quick --dashboard-port 0 $(RUN_FLAGS)

compiled: $(READY_FOR)compiled  ## carla-lite's inner modules as machine code; wants a C compiler and a minute or two
	$(BIN)/python -m carla_lite.compiled

ready: $(READY_FOR)lint $(READY_FOR)test  ## only the environment of every part of `test` that CI runs

test:  ## linters, unit tests, and real processes against carla-lite, whatever fails before; says at the end what did
test-all:  ## every test that this machine can run: those of `test`, containers, and all that is marked `long`
test test-all:
	@failed=; for part in $(PARTS); do $(MAKE) --no-print-directory $$part || failed="$$failed $$part"; done; \
	if [ -n "$$failed" ]; then echo "make $@: failed:$$failed" >&2; exit 1; fi; echo "make $@: passed: $(PARTS)"

%-takes:
	@echo "make $*: $($*_TAKES)"

unit: unit-takes $(READY_FOR)test
	OMP_NUM_THREADS=1 $(PYTEST) -n auto --dist worksteal -m "not long" tests/unit $(PYTEST_FLAGS)

wire: wire-takes $(READY_FOR)test
	$(PYTEST) -n 2 --dist worksteal -m "not long" tests/wire tests/soak $(PYTEST_FLAGS)

stack: stack-takes $(READY_FOR)test
	$(PYTEST) -m "not long" tests/stack $(PYTEST_FLAGS)

long: long-takes $(READY_FOR)long
	$(PYTEST) -m long tests

soak: $(READY_FOR)test  ## kill learner, simulator and collector at 90 random instants (about half an hour); exit 1 on a loss
	PYTHONPATH=benchmarks $(BIN)/python -m tests.soak $(SOAK_FLAGS)
	$(BIN)/python -m tests.soak.crash_points
	$(BIN)/python -m pytest -m long tests/soak/test_two_faults.py
	$(BIN)/python -m tests.soak.hours
	$(PYTEST) -m long tests/unit/test_hostile_files.py tests/unit/carla_lite/test_rpc_fuzz.py \
		tests/unit/carla_lite/test_roads_too_large.py tests/unit/carla_lite/test_roads_as_found.py \
		tests/unit/launcher/test_nvml_fails.py

ifeq ($(CARLA),no)
verify-gpu:  ## with a real card and CARLA: everything that needs them; one file to send back. CARLA=no: installs nothing
	$(PYTHON) scripts/verify_gpu.py --no-carla $(VERIFY_FLAGS)
else
verify-gpu: $(READY_FOR)test
	$(BIN)/python scripts/verify_gpu.py $(VERIFY_FLAGS)
endif

lint: lint-takes $(READY_FOR)lint
	$(BIN)/python -m ruff check .
	$(BIN)/python -m ruff format --check .
	$(BIN)/python -m mypy
	$(BIN)/python -m codespell_lib
	$(DOCS)

docs: $(READY_FOR)lint  ## the documentation as a site in build/site; a dead link or a missing picture fails
	$(DOCS)

clean:  ## the environment and caches, never a run
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis *.egg-info */*.egg-info carla/lite/*.egg-info

$(BIN)/python:
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; sys.exit(None if (3, 10) <= v < (3, 13) else \
	f"Python {v[0]}.{v[1]} found, 3.10 to 3.12 needed (the carla client has no other wheels): make $(MAKECMDGOALS) PYTHON=python3.12")'
	$(PYTHON) -m venv $(VENV)

$(READY_FOR)%: pyproject.toml carla/lite/pyproject.toml carla/lite/VERSION constraints.txt | $(BIN)/python
	@echo "make: installs $(subst $(comma), ,$($*_NEEDS)) and what they need into $(VENV), a few minutes"
	$(BIN)/python -m pip install $(if $(MAKE_TERMOUT),,-q) $(PIP_FLAGS) -c constraints.txt -e carla/lite -e '.[$($*_NEEDS)]'
	@touch $@ $(addprefix $(READY_FOR),$(foreach purpose,run test,$(if $(findstring $($(purpose)_NEEDS),$($*_NEEDS)),$(purpose))))
