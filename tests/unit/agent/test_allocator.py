"""The allocator is told what it can use, under both names, before torch is imported; mistakes are one sentence."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from carla_run.event_log import EventLog
from carla_run.exits import Exit
from carla_run.paths import RunPaths
from carla_td3 import config
from carla_td3.config import MemoryConfig
from carla_td3.layered_yaml import ConfigError
from carla_td3.memory import preflight
from carla_td3.memory.allocator import SHIPPED, VARIABLES, Choice, Platform, build, parse, prepare, render
from tests.crowd import PATIENCE_S

REPOSITORY = Path(__file__).resolve().parents[3]
LINUX = Platform(torch=(2, 13), wsl=False)
WSL = Platform(torch=(2, 13), wsl=True)
SEED_NOTE_000 = "expandable_segments:True,garbage_collection_threshold:0.7,max_split_size_mb:128"
SEED_NOTE_001 = "expandable_segments:True,max_split_size_mb:128,garbage_collection_threshold:0.8"

share = st.floats(0.001, 0.999)
powers = st.integers(0, 10).map(lambda exponent: str(2**exponent))
common = {
    "pinned_use_background_threads": st.booleans(),
    "pinned_use_cuda_host_register": st.booleans(),
    "pinned_num_register_threads": st.integers(1, 128),
    "release_lock_on_cudamalloc": st.booleans(),
}
native = {
    "backend": st.just("native"),
    "garbage_collection_threshold": share,
    "max_non_split_rounding_mb": st.integers(21, 10_000),
    "roundup_power2_divisions": powers | powers.map(lambda power: f"[256:{power},>:4]"),
    **common,
}


def some_of(values: dict[str, Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Return one at least of these settings."""
    return st.sampled_from(sorted(values)).flatmap(
        lambda key: st.fixed_dictionaries(
            {key: values[key]}, optional={name: value for name, value in values.items() if name != key}
        )
    )


growing = some_of({"expandable_segments": st.booleans(), **native})
splitting = some_of({"max_split_size_mb": st.integers(20, 10_000), **native})
driver = st.fixed_dictionaries({"backend": st.just("cudaMallocAsync")}, optional=common)


@given(growing | splitting | driver)
def test_what_is_rendered_is_read_back_by_us_and_torch(
    settings: dict[str, bool | int | float | str],
) -> None:
    assert parse(render(settings), "test") == settings
    torch._C._accelerator_setAllocatorSettings(render(settings))


def test_white_space_is_skipped_as_torch_skips_it() -> None:
    assert parse(" max_split_size_mb : 64 , backend: native", "test") == {"max_split_size_mb": 64, "backend": "native"}


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("expandable_segments:true", "expandable_segments is 'true', expected True or False, capitalised"),
        ("max_split_size_mb:19", "max_split_size_mb is '19', expected a whole number of at least 20"),
        ("max_split_size_mb:128MB", "max_split_size_mb is '128MB'"),
        ("garbage_collection_threshold:1", "is '1', expected a number between 0 and 1"),
        ("garbage_collection_threshold:0", "is '0', expected a number between 0 and 1"),
        ("garbage_collection_threshold:nan", "is 'nan'"),
        ("roundup_power2_divisions:3", "expected a power of 2"),
        ("roundup_power2_divisions:[256:1,512:3]", "expected a power of 2"),
        ("backend:cuda", "backend is 'cuda', expected native or cudaMallocAsync"),
        ("expandable_segment:True", "unknown key 'expandable_segment'; known are backend, expandable_segments"),
        ("per_process_memory_fraction:0.5", "unknown key 'per_process_memory_fraction'"),
        ("expandable_segments", "'expandable_segments' is no setting"),
        ("backend:native,", "'' is no setting"),
        ("backend:native,backend:native", "backend is given twice"),
    ],
)
def test_a_mistake_is_one_sentence_that_names_it(text: str, sentence: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse(text, source="PYTORCH_ALLOC_CONF")
    assert str(refused.value).startswith("PYTORCH_ALLOC_CONF: ")
    assert sentence in str(refused.value)
    assert "\n" not in str(refused.value)


FALLBACK = "max_split_size_mb:128,garbage_collection_threshold:0.8"
COARSE, OTHER = "expandable_segments:True,garbage_collection_threshold:0.7", "max_split_size_mb:64"
SPLITS = "has expandable_segments:True, which excludes max_split_size_mb"
DRIVER = "has backend:cudaMallocAsync, which leaves the pool to the driver and ignores"
LACKS = "asks for expandable_segments, but WSL2 has none"
OLD = Platform((2, 0), wsl=False)


@pytest.mark.parametrize(
    ("values", "given", "platform", "kept", "dropped"),
    [
        # By configuration and platform.
        ({}, "", LINUX, "expandable_segments:True", None),
        ({"garbage_collection_threshold": 0.7}, "", LINUX, COARSE, None),
        ({}, "", WSL, FALLBACK, None),
        ({"garbage_collection_threshold": 0.6}, "", WSL, FALLBACK.replace("0.8", "0.6"), None),
        ({"expandable_segments": True}, "", WSL, "expandable_segments:True", None),
        ({}, "", OLD, FALLBACK, None),
        ({"expandable_segments": False}, "", LINUX, FALLBACK, None),
        ({"backend": "cudaMallocAsync"}, "", LINUX, "backend:cudaMallocAsync", None),
        # A person's own setting wins.
        ({}, f" {OTHER}", LINUX, OTHER, None),
        ({}, OTHER, WSL, OTHER, None),
        ({"backend": "cudaMallocAsync"}, OTHER, LINUX, OTHER, None),
        # What the container ships with is a default like the configuration's.
        ({}, SHIPPED, LINUX, SHIPPED, None),
        ({"backend": "cudaMallocAsync"}, SHIPPED, LINUX, "backend:cudaMallocAsync", None),
        ({"expandable_segments": False}, SHIPPED, LINUX, FALLBACK, None),
        ({"garbage_collection_threshold": 0.6}, SHIPPED, LINUX, COARSE.replace("0.7", "0.6"), None),
        # What the platform hasn't, or others of the string exclude, is left out.
        ({}, SHIPPED, WSL, FALLBACK, LACKS),
        ({}, "expandable_segments:True", WSL, FALLBACK, LACKS),
        ({}, "expandable_segments:True,backend:native", WSL, f"{FALLBACK},backend:native", LACKS),
        ({}, SEED_NOTE_000, LINUX, COARSE, SPLITS),
        ({}, SEED_NOTE_001, LINUX, COARSE.replace("0.7", "0.8"), SPLITS),
        ({}, SEED_NOTE_000, WSL, FALLBACK.replace("0.8", "0.7"), LACKS),
        ({}, "backend:cudaMallocAsync,expandable_segments:True", WSL, "backend:cudaMallocAsync", DRIVER),
        (
            *({}, f"backend:cudaMallocAsync,{SEED_NOTE_001}", LINUX, "backend:cudaMallocAsync"),
            f"{DRIVER} expandable_segments, max_split_size_mb, garbage_collection_threshold",
        ),
    ],
)
@pytest.mark.parametrize("name", VARIABLES)
def test_both_variables_say_what_holds(
    values: dict[str, object], given: str, platform: Platform, kept: str, dropped: str | None, name: str
) -> None:
    environment = {name: given}
    choice = prepare(MemoryConfig.model_validate(values), environment, platform)
    assert choice.text == kept
    assert environment == dict.fromkeys(VARIABLES, kept)
    if given in (OTHER, f" {OTHER}"):
        assert name in choice.cause
    if dropped is None:
        assert choice.dropped is None
    else:
        assert choice.dropped is not None
        assert choice.dropped.startswith(f"the environment's {name} {dropped}")
        assert choice.dropped.endswith(f": PyTorch is told {kept} instead.")
        assert "\n" not in choice.dropped


@pytest.mark.parametrize(
    ("values", "platform", "sentence"),
    [
        ({"backend": "cudaMallocAsync", "garbage_collection_threshold": 0.5}, LINUX, f"memory {DRIVER} garbage"),
        ({"backend": "cudaMallocAsync", "expandable_segments": True}, LINUX, f"{DRIVER} expandable_segments"),
        ({"backend": "cudaMallocAsync"}, Platform((1, 13), wsl=False), "torch 1.13 has none: set it to native"),
        ({"expandable_segments": True}, OLD, "torch 2.0 has none: set it to auto"),
    ],
)
def test_what_the_allocator_cannot_follow_is_refused(
    values: dict[str, object], platform: Platform, sentence: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        prepare(MemoryConfig.model_validate(values), {}, platform)
    assert sentence in str(refused.value)


def test_the_fallback_says_why() -> None:
    assert build(MemoryConfig(), WSL)[1] == "no expandable segments: WSL2 has none"


def test_a_build_for_the_cpu_takes_the_container_s_setting() -> None:
    ended = run("import torch; torch.zeros(1); print('well')", **dict.fromkeys(VARIABLES, SHIPPED))
    assert (ended.stdout, ended.stderr) == ("well\n", "")


def test_the_notes_string_and_batch_are_taken_and_said(tmp_path: Path) -> None:
    asked = ("train", "--run-dir", str(tmp_path / "run"), "--device", "cpu")
    ended = run(AT_TORCH_S_IMPORT, *asked, PYTORCH_CUDA_ALLOC_CONF=SEED_NOTE_001, RL_BATCH_SIZE="32")
    kept = "expandable_segments:True,garbage_collection_threshold:0.8"
    assert ended.stdout.split() == [kept] * 2, ended.stderr
    batch, allocator = ended.stderr.splitlines()
    assert (
        batch == "RL_BATCH_SIZE is 32: td3.batch_size is that. AGENT_BATCH, or --set td3.batch_size=N, says the same."
    )
    assert allocator.endswith(f"excludes max_split_size_mb: PyTorch is told {kept} instead.")


def test_two_settings_that_differ_are_refused() -> None:
    first, second = VARIABLES
    with pytest.raises(ConfigError, match="give both the same value, or unset one"):
        prepare(MemoryConfig(), {first: "expandable_segments:True", second: "max_split_size_mb:64"}, LINUX)
    prepare(MemoryConfig(), {first: "expandable_segments:True", second: "expandable_segments: True"}, LINUX)


def run(program: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    return subprocess.run(
        [sys.executable, "-c", program, *arguments],
        check=False,
        capture_output=True,
        text=True,
        cwd=REPOSITORY,
        env={**clean, **environment},
        timeout=PATIENCE_S,
    )


AT_TORCH_S_IMPORT = """
import os, sys
class Watch:
    def find_spec(self, name, *rest):
        if name == "torch":
            print(os.environ.get("PYTORCH_CUDA_ALLOC_CONF"), os.environ.get("PYTORCH_ALLOC_CONF"), flush=True)
            os._exit(0)
sys.meta_path.insert(0, Watch())
from carla_td3.__main__ import app
app()
"""


@pytest.mark.parametrize("command", ["train", "footprint"])
def test_both_variables_are_set_when_torch_is_imported(tmp_path: Path, command: str) -> None:
    seen = run(AT_TORCH_S_IMPORT, command, "--run-dir", str(tmp_path), "--set", "memory.backend=cudaMallocAsync")
    assert seen.stdout.split() == ["backend:cudaMallocAsync"] * 2, seen.stderr


def test_a_bad_setting_stops_training_before_it_begins(tmp_path: Path) -> None:
    program = "from carla_td3.__main__ import app; app()"
    ended = run(program, "train", "--run-dir", str(tmp_path / "run"), PYTORCH_CUDA_ALLOC_CONF="max_split_size_mb:1")
    assert ended.returncode == Exit.BAD_CONFIG, ended.stderr
    assert ended.stderr.startswith("PYTORCH_CUDA_ALLOC_CONF: max_split_size_mb is '1', expected a whole number")
    assert len(ended.stderr.strip().splitlines()) == 1
    assert not (tmp_path / "run").exists()


def test_the_event_says_that_the_cpu_has_no_such_allocator(tmp_path: Path) -> None:
    directory = RunPaths(tmp_path)
    choice, log = Choice("expandable_segments:True", "a test"), EventLog(directory.agent_events).append
    preflight.run_preflight(config.validate({"device": "cpu"}, "test"), directory, choice, log)
    event = json.loads(directory.agent_events.read_text().splitlines()[0])
    assert (event["event"], event["cause"]) == ("allocator", "a test")
    assert event["setting"] == "expandable_segments:True"
    assert event["took_hold"] == "not applicable on the CPU"


def test_a_key_that_did_not_take_hold_is_named() -> None:
    wanted = {"expandable_segments": True, "garbage_collection_threshold": 0.8, "release_lock_on_cudamalloc": True}
    took_hold = {"expandable_segments": False, "garbage_collection_threshold": 0.8, "max_split_size": -1}
    assert preflight.ignored(wanted, took_hold) == ["expandable_segments"]
