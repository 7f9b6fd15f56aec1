"""Other processors, as far as this one can play them: what depends on the instruction set, once more under caps."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from carla_td3.td3.kernels.arithmetic import cpu_has_bfloat16
from tests.unit.agent.capped import CAPPED_TO, implementation

REPOSITORY = Path(__file__).resolve().parents[3]
ATEN = {"AVX2": "avx2", "AVX512_CORE": "avx512"}
NEEDED = {"AVX2": {"avx2"}, "AVX512_CORE": {"avx512_f", "avx512_bw", "avx512_dq", "avx512_vl"}}
FILES = {
    "test_estimate.py": "(peak_of_an_update and (full-64-64 or small-256-64 or trunk-100-30)) or high_water or "
    "smaller_observation or (float16 and small)",
    "test_convolutions.py": "test_",
    "test_networks.py": "float",
    "test_td3.py": "bfloat16 or Parts",
    "test_float16.py": "without_an_overflow",
    "test_precision.py": "here",
}


@pytest.mark.timeout(900)  # beside other tests; half a minute on an idle machine
@pytest.mark.long
@pytest.mark.parametrize("cap", ["AVX2", "AVX512_CORE"])
def test_what_the_instruction_set_decides_holds_under_a_cap(cap: str) -> None:
    lacking = NEEDED[cap] - {name for name, has in torch.cpu.get_capabilities().items() if has is True}
    if lacking:
        pytest.skip(f"this processor has no {', '.join(sorted(lacking))}, and can't play one that has")
    chosen = " or ".join(f"({name} and ({tests}))" for name, tests in FILES.items())
    files = [f"tests/unit/agent/{name}" for name in FILES]
    command = [sys.executable, "-m", "pytest", "-p", "tests.unit.agent.capped", "-p", "no:cacheprovider", "-q", "-s"]
    caps = {"ONEDNN_MAX_CPU_ISA": cap, "ATEN_CPU_CAPABILITY": ATEN[cap], CAPPED_TO: cap}
    ended = subprocess.run(
        [*command, "-k", chosen, *files],
        check=False,
        capture_output=True,
        text=True,
        cwd=REPOSITORY,
        env=os.environ | caps | {"OMP_NUM_THREADS": "1"},
    )
    assert ended.returncode == 0, ended.stdout[-8000:] + ended.stderr[-2000:]
    assert f"Capped to {cap}: " in ended.stdout
    passed = re.search(r"(\d+) passed", ended.stdout)
    assert passed is not None
    assert int(passed[1]) >= 30, ended.stdout


def test_bfloat16_is_hardware_where_onednn_says_so() -> None:
    kernel = implementation(torch.bfloat16)
    native = kernel is not None and any(name in kernel for name in ("bf16", "fp16", "amx", "avx10"))
    assert cpu_has_bfloat16() is native, kernel
