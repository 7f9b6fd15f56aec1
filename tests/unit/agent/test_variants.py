"""Many sets of values sized by one process, through the command as the launcher calls it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from carla_launcher import config as launcher_config
from carla_run.exits import Exit
from carla_td3 import config
from carla_td3.memory import estimate
from carla_td3.memory.estimate import MIB
from tests.crowd import PATIENCE_S

REPOSITORY = Path(__file__).resolve().parents[3]


def footprint_command(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "carla_td3", "footprint", *arguments]
    return subprocess.run(
        command,
        check=False,
        capture_output=True,
        text=True,
        cwd=REPOSITORY,
        env=os.environ | environment,
        timeout=PATIENCE_S,
    )


def answer(*sets: dict[str, Any], device: str = "cpu") -> dict[str, Any]:
    ended = footprint_command("--device", device, "--variants", json.dumps(sets))
    assert ended.returncode == Exit.FINISHED, ended.stderr
    found = json.loads(ended.stdout)
    assert isinstance(found, dict)
    return found


def test_each_set_of_values_is_sized_as_the_configuration_that_it_makes() -> None:
    found = answer({}, {"td3.micro_batch": 32}, {"td3.batch_size": 64, "evaluation.video": False})
    plain, parts, smaller = found["variants"]
    settings = config.load(Path("full"), {"device": "cpu"})
    assert plain["host_mib"] == found["total_mib"]["host"]
    assert parts["host_mib"] == round(estimate.estimate(settings, False, micro_batch=32).total("host") / MIB, 1)
    assert parts["host_mib"] < plain["host_mib"]
    assert smaller["values"] == {"td3.batch_size": 64, "evaluation.video": False}
    assert plain["host_mib"] - smaller["host_mib"] > 45, "the smaller batch, and the video's encoder"


def test_the_base_values_come_back_by_their_dotted_names() -> None:
    values = answer({"td3.batch_size": 64})["config"]
    assert values["td3.batch_size"] == 256, "of the configuration, not of a variant"
    assert values["device"] == "cpu"
    assert values["memory.offload"] == []
    rungs = [rung for ladder in launcher_config.load().ladder.values() for rung in ladder]
    assert {key for rung in rungs for key in rung.values} <= set(values), "all that the shipped ladder sets"


@pytest.mark.parametrize(
    ("values", "named"),
    [({"td3.batch_size": 0}, "td3.batch_size"), ({"td3.nope": 1}, "td3.nope"), ({"device.x": 1}, "device.x")],
)
def test_a_variant_that_is_no_configuration_says_so_and_spoils_no_other(values: dict[str, Any], named: str) -> None:
    refused, plain = answer(values, {})["variants"]
    assert named in refused["refusal"]
    assert "host_mib" not in refused
    assert plain["refusal"] is None


def test_cuda_is_sized_on_a_machine_that_has_none_without_a_look_for_it() -> None:
    found = answer({}, {"device": "cpu"}, {"memory.offload": ["optimizer", "targets"]}, device="cuda")
    on_gpu, on_cpu, offloaded = found["variants"]
    assert found["device"] == "cuda"
    assert found["free_mib"]["device"] is None
    assert on_gpu["context_mib"] == estimate.CUDA_CONTEXT / MIB < on_gpu["device_mib"]
    assert on_gpu["device_by_phase_mib"]["updating"] == on_gpu["device_mib"]
    assert on_cpu["device_mib"] == on_cpu["context_mib"] == 0
    assert offloaded["device_mib"] < on_gpu["device_mib"]
    assert offloaded["host_mib"] > on_gpu["host_mib"]


def test_the_plain_command_gives_cuda_s_figures_too_and_says_what_is_missing() -> None:
    ended = footprint_command("--device", "cuda", "--json", CUDA_VISIBLE_DEVICES="")
    assert ended.returncode == Exit.OUT_OF_MEMORY
    found = json.loads(ended.stdout)
    assert found["total_mib"]["device"] > estimate.CUDA_CONTEXT / MIB
    assert "torch sees no CUDA device" in found["refusal"]
    assert found["fits"] is False


@pytest.mark.parametrize("text", ["{", "{}", "[1]"])
def test_what_is_no_list_of_objects_is_refused_in_one_sentence(text: str) -> None:
    ended = footprint_command("--device", "cpu", "--variants", text)
    assert ended.returncode == Exit.BAD_CONFIG
    assert ended.stderr.startswith("--variants: ")
    assert len(ended.stderr.splitlines()) == 1


def test_sizing_variants_needs_no_torch() -> None:
    program = (
        "import sys; from carla_td3.__main__ import app; app(standalone_mode=False); print('torch' in sys.modules)"
    )
    arguments = [sys.executable, "-c", program, "footprint", "--device", "cuda", "--variants", "[{}]"]
    ended = subprocess.run(arguments, check=False, capture_output=True, text=True, cwd=REPOSITORY, timeout=PATIENCE_S)
    assert ended.stdout.splitlines()[-1] == "False", ended.stderr
