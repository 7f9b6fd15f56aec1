"""Checkpoints whose checksums hold, but from which no training can continue: named, and an older one is used."""

from __future__ import annotations

import hashlib
import json
import resource
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from torch import Tensor

from carla_run.exits import Exit
from carla_run.paths import RunPaths
from carla_run.sealed import sealed, unsealed
from carla_td3 import config
from carla_td3.run_directory import prepare, save_config
from carla_td3.trainer import checkpoint
from carla_td3.trainer.checkpoint import CheckpointError
from carla_td3.trainer.learner import Learner, architecture
from carla_td3.trainer.pacing import Counters
from tests.conftest import REPOSITORY
from tests.crowd import PATIENCE_S

TINY = config.validate({"td3": {"network": {"channels": [4, 4, 4], "features": 16, "hidden": [16]}}}, source="test")
Change = Callable[[dict[str, Tensor]], object]


@pytest.fixture
def run(tmp_path: Path) -> Iterator[RunPaths]:
    """Return a run with the checkpoints of steps 5 and 9."""
    paths = RunPaths(tmp_path / "run")
    with prepare(paths, resume=False):
        for steps in (5, 9):
            Learner(TINY, paths).save(Counters(steps=steps, updates=0, evaluated_at=steps), score=None)
        yield paths


def rewritten(folder: Path, name: str, content: bytes) -> None:
    """Replace one of a checkpoint's files, and let the manifest say that this is what was written."""
    (folder / name).write_bytes(content)
    manifest = unsealed(json.loads((folder / "manifest.json").read_bytes()))
    manifest["sha256"][name] = hashlib.sha256(content).hexdigest()
    if name == "tensors.safetensors":
        manifest["tensor_bytes"] = len(content)
    (folder / "manifest.json").write_text(json.dumps(sealed(manifest)))


def skipped(run: RunPaths) -> str:
    """Return what the next start says of the checkpoint that it passes over."""
    assert Learner(TINY, run).counters().evaluated_at == 5
    event = json.loads(run.agent_events.read_text().splitlines()[-1])
    assert (event["event"], event["used"]) == ("checkpoint_skipped", "step-000000005")
    assert event["cause"].startswith(f"{run.checkpoints / 'step-000000009'}")
    assert "\n" not in event["cause"]
    return str(event["cause"])


def named(tensors: dict[str, Tensor], part: str) -> str:
    return next(name for name in sorted(tensors) if part in name and tensors[name].dim() > 1)


def changed(part: str, change: Callable[[Tensor], Tensor]) -> Change:
    return lambda tensors: tensors.update({(name := named(tensors, part)): change(tensors[name]).contiguous()})


def one(value: float) -> Callable[[Tensor], Tensor]:
    def put(tensor: Tensor) -> Tensor:
        tensor.view(-1)[-1] = value
        return tensor

    return put


TENSORS: dict[str, tuple[Change, str]] = {
    "NaN in the policy": (
        changed("online.actor", one(float("nan"))),
        "holds NaN or infinity, so this driver can't drive",
    ),
    "infinity in the optimizer": (changed("adam.", one(float("inf"))), "holds NaN or infinity"),
    "another shape": (changed("online.actor", lambda tensor: tensor[:1]), "expected torch.float32 (16, "),
    "more axes": (changed("online.encoder", lambda tensor: tensor[None]), "doesn't fit the networks ("),
    "nothing in it": (changed("online.actor", lambda tensor: tensor[:0]), "doesn't fit the networks ("),
    "another type": (changed("online.actor", Tensor.double), "is torch.float64 ("),
    "bytes for numbers": (changed("online.actor", lambda tensor: tensor.to(torch.uint8)), "is torch.uint8 ("),
    "no policy": (
        lambda tensors: [tensors.pop(name) for name in list(tensors) if name.startswith("online.actor")],
        "is missing",
    ),
    "nothing at all": (dict.clear, "doesn't fit the networks ("),
    "updates below 0": (lambda tensors: tensors.update(updates=torch.tensor(-3)), "updates is -3, expected at least 0"),
    "short noise": (lambda tensors: tensors.update(noise=tensors["noise"][:9]), "noise is torch.uint8 (9,)"),
}


@pytest.mark.parametrize("what", TENSORS)
def test_tensors_from_which_nothing_can_continue_are_named(run: RunPaths, what: str) -> None:
    folder, (change, sentence) = run.checkpoints / "step-000000009", TENSORS[what]
    tensors = safetensors.torch.load((folder / "tensors.safetensors").read_bytes())
    change(tensors)
    rewritten(folder, "tensors.safetensors", safetensors.torch.save(tensors))
    assert sentence in skipped(run)


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"evaluated_at": "x", "finally_evaluated": False},
        {"evaluated_at": 1e999, "finally_evaluated": False},
        {"evaluated_at": 9, "finally_evaluated": False, "pacing": {"ratio": "1/0", "steps": 0, "updates": 0}},
        {"evaluated_at": 9, "finally_evaluated": False, "pacing": [[]]},
    ],
)
def test_values_from_which_nothing_can_continue_are_named(run: RunPaths, values: dict[str, Any]) -> None:
    rewritten(run.checkpoints / "step-000000009", "values.json", json.dumps(values).encode())
    assert "doesn't fit the networks (" in skipped(run)


def test_an_evaluation_passes_over_it_too_and_one_that_is_asked_for_is_refused(run: RunPaths) -> None:
    from carla_td3.cli import evaluation

    save_config(run, TINY)
    folder = run.checkpoints / "step-000000009"
    tensors = safetensors.torch.load((folder / "tensors.safetensors").read_bytes())
    TENSORS["another shape"][0](tensors)
    rewritten(folder, "tensors.safetensors", safetensors.torch.save(tensors))
    assert evaluation.trained(run.path).policy is not None
    with pytest.raises(CheckpointError, match="step-000000009: doesn't fit the networks") as refused:
        evaluation.trained(folder)
    assert refused.value.code == Exit.BAD_CONFIG


def test_diverged_weights_displace_no_checkpoint(run: RunPaths) -> None:
    tensors = {"online.a": torch.tensor([0.0, float("nan")])}
    with pytest.raises(CheckpointError, match=r"online.a holds NaN or infinity: training has diverged, .* untouched"):
        checkpoint.save(run.path, 20, tensors, {}, architecture={}, config_digest="", keep=1)
    assert {path.name for path in run.checkpoints.glob("*")} == {"latest", "step-000000005", "step-000000009"}


def header(said: Any, data: bytes = bytes(16)) -> bytes:
    text = said if isinstance(said, bytes) else json.dumps(said).encode()
    return struct.pack("<Q", len(text)) + text + data


def tensor(offsets: list[int], shape: list[int] | None = None, kind: str = "F32") -> dict[str, Any]:
    return {"a": {"dtype": kind, "shape": [4] if shape is None else shape, "data_offsets": offsets}}


FILES = {
    "empty": b"",
    "length of exabytes": struct.pack("<Q", 2**63) + b"{}",
    "length of gigabytes": struct.pack("<Q", 8 << 30) + b"{}",
    "length beyond the file": struct.pack("<Q", 90_000_000) + b"{}",
    "offsets beyond the file": header(tensor([0, 1 << 40], [1 << 38])),
    "offsets backwards": header(tensor([16, 0])),
    "negative offsets": header(tensor([-16, 0])),
    "offsets that leave a hole": header(tensor([8, 24]), bytes(24)),
    "offsets that overlap": header({**tensor([0, 16]), "b": tensor([8, 24])["a"]}, bytes(24)),
    "shape that overflows": header(tensor([0, 16], [2**63, 2**63, 4])),
    "shape of a googol": header(tensor([0, 16], [10**100])),
    "unknown type": header(tensor([0, 16], kind="F3")),
    "no object": header([1, 2]),
    "deep": header(b"[" * 1_000_000),
    "not UTF-8": header(b'{"\xff": 1}'),
    "pickle": b"\x80\x04cposix\nsystem\n",
}
READ = """
import resource, sys
from pathlib import Path
from carla_td3.trainer import checkpoint
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for path in sys.argv[1:]:
    print(checkpoint.load(Path(path), {}).skipped[0])
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def test_headers_that_lie_are_named_in_little_memory(tmp_path: Path) -> None:
    for what, content in FILES.items():
        for step in (1, 2):
            folder = checkpoint.save(
                tmp_path / what, step, {"a": torch.zeros(4)}, {}, architecture={}, config_digest="", keep=2
            )
        rewritten(folder, "tensors.safetensors", content)
    command = [sys.executable, "-c", READ, *(str(tmp_path / what) for what in FILES)]
    limit = (8 << 30, 8 << 30)
    ended = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        cwd=REPOSITORY,
        timeout=PATIENCE_S,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_DATA, limit),
    )
    assert ended.returncode == 0, ended.stderr
    *sentences, grown_kib = ended.stdout.splitlines()
    assert len(sentences) == len(FILES)
    for what, sentence in zip(FILES, sentences, strict=True):
        assert sentence.startswith(f"{tmp_path / what / 'checkpoints' / 'step-000000002'}: can't be read ("), sentence
    assert int(grown_kib) < 64 << 10


@pytest.mark.parametrize(
    ("name", "why"),
    [("manifest.json", "File too large"), ("values.json", "File too large"), ("tensors.safetensors", "were written)")],
)
def test_a_tebibyte_is_not_read(run: RunPaths, name: str, why: str) -> None:
    with (run.checkpoints / "step-000000009" / name).open("r+b") as file:
        file.truncate(1 << 40)
    assert why in skipped(run)


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory")])
def test_a_checkpoint_that_memory_is_too_short_for_is_not_passed_over(run: RunPaths, error: Exception) -> None:
    """It may be whole, and an older one would lose the steps in between."""

    def too_large(_: checkpoint.Checkpoint) -> None:
        raise error

    with pytest.raises(type(error)):
        checkpoint.load(run.path, architecture(TINY), too_large)
