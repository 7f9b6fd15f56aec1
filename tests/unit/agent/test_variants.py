"""Many sets of values sized at once, as the launcher asks; and the command that answers it, which needs no torch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from carla_launcher.resolve.footprint import program
from carla_run.exits import Exit
from carla_td3 import config
from carla_td3.config import AgentConfig, ConfigError
from carla_td3.memory import estimate
from carla_td3.memory.estimate import MIB
from tests.crowd import PATIENCE_S

REPOSITORY = Path(__file__).resolve().parents[3]


def settings(device: str = "cpu") -> AgentConfig:
    return config.load(Path("full"), {"device": device})


def sized(*sets: dict[str, Any], device: str = "cpu") -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = estimate.variants(settings(device), sets)["variants"]
    return rows


def test_each_set_of_values_is_sized_as_the_configuration_that_it_makes() -> None:
    plain, parts, smaller = sized({}, {"td3.micro_batch": 32}, {"td3.batch_size": 64, "evaluation.video": False})
    for row, micro_batch in ((plain, None), (parts, 32)):
        whole = estimate.estimate(settings(), False, micro_batch=micro_batch).total("host")
        assert row["host_mib"] == round(whole / MIB, 1)
    assert parts["host_mib"] < plain["host_mib"]
    assert smaller["values"] == {"td3.batch_size": 64, "evaluation.video": False}
    assert plain["host_mib"] - smaller["host_mib"] > 45, "the smaller batch, and the video's encoder"


def test_the_base_values_are_the_configurations_and_hold_all_that_a_shipped_rung_sets() -> None:
    values = estimate.variants(settings(), [{"td3.batch_size": 64}])["config"]
    assert (values["td3.batch_size"], values["device"], values["memory.offload"]) == (256, "cpu", [])
    assert {key for rung in program().rungs for key in rung.values} <= set(values)


def test_a_variant_that_is_no_configuration_says_so_and_spoils_no_other() -> None:
    wrong = ("td3.batch_size", 0), ("td3.nope", 1), ("device.x", 1)
    *refused, plain = sized(*({key: value} for key, value in wrong), {})
    for (key, _), row in zip(wrong, refused, strict=True):
        assert key in row["refusal"]
        assert "host_mib" not in row
    assert plain["refusal"] is None


def test_cuda_is_sized_on_a_machine_that_has_none() -> None:
    on_gpu, on_cpu, offloaded = sized(
        {}, {"device": "cpu"}, {"memory.offload": ["optimizer", "targets"]}, device="cuda"
    )
    assert on_gpu["context_mib"] == estimate.CUDA_CONTEXT / MIB < on_gpu["device_mib"]
    assert on_gpu["device_by_phase_mib"]["updating"] == on_gpu["device_mib"]
    assert on_cpu["device_mib"] == on_cpu["context_mib"] == 0
    assert offloaded["device_mib"] < on_gpu["device_mib"]
    assert offloaded["host_mib"] > on_gpu["host_mib"]


@pytest.mark.parametrize("text", ["{", "{}", "[1]"])
def test_what_is_no_list_of_objects_is_refused_in_one_sentence(text: str) -> None:
    with pytest.raises(ConfigError, match=r"^--variants: .+\.$"):
        estimate.parse_variants(text)


def command(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    program = (
        "import sys; from carla_td3.__main__ import app; code = app(standalone_mode=False); "
        "print('torch' in sys.modules); sys.exit(code)"
    )
    return subprocess.run(
        [sys.executable, "-c", program, "footprint", *arguments],
        check=False,
        capture_output=True,
        text=True,
        cwd=REPOSITORY,
        env=os.environ | environment,
        timeout=PATIENCE_S,
    )


@pytest.mark.parametrize("arguments", [("cpu", "--json"), ("cuda", "--variants", "[{}, {}]")])
def test_the_command_needs_no_torch_where_no_gpu_is_looked_at(arguments: tuple[str, ...]) -> None:
    device, *more = arguments
    ended = command("--device", device, *more)
    answer, _, torch_loaded = ended.stdout.strip().rpartition("\n")
    found = json.loads(answer)
    assert (torch_loaded, found["device"], found["free_mib"]["device"]) == ("False", device, None), ended.stderr
    assert len(found.get("variants", "")) == (2 if device == "cuda" else 0)


def test_the_plain_command_gives_cuda_s_figures_too_and_says_what_is_missing() -> None:
    ended = command("--device", "cuda", "--json", CUDA_VISIBLE_DEVICES="")
    assert ended.returncode == Exit.OUT_OF_MEMORY
    found = json.loads(ended.stdout.strip().rpartition("\n")[0])
    assert found["total_mib"]["device"] > estimate.CUDA_CONTEXT / MIB
    assert "torch sees no CUDA device" in found["refusal"]
    assert found["fits"] is False
