"""Checkpoints of a run: complete or absent, verified when loaded, nothing unpickled.

Owns ``checkpoints/step-000120000/`` and ``checkpoints/latest`` in a run directory. Knows tensors by name and everything
else as plain data; what they mean is the learner's business.

A directory holds ``tensors.safetensors``, ``values.json`` (counters, random states) and ``manifest.json`` (step,
architecture, configuration digest, versions, score, the other files' SHA-256, and its checksum). It is written under a
temporary name, synced, renamed, and only then named in ``latest``.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import safetensors.torch
import torch
from torch import Tensor

from carla_run import formats
from carla_run.atomic_directory import newest_first, publish
from carla_run.exits import Exit, ExitError
from carla_run.files import read_whole, sync, write_synced
from carla_run.readers import inner
from carla_run.sealed import is_damaged, sealed
from carla_td3.config import AgentConfig
from carla_td3.exits import is_out_of_memory
from carla_td3.pins import legacy_values

_TENSORS, _VALUES, _MANIFEST = "tensors.safetensors", "values.json", "manifest.json"
_PATTERN, _NAME = "step-*", re.compile(r"(\.old-)?step-\d+")
_BROKEN = (
    *(OSError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError),
    *(RuntimeError, StopIteration, safetensors.SafetensorError),
)
"""What reading a broken file raises."""


class CheckpointError(ExitError):
    """A checkpoint that can't be written or used; the message is one sentence for a person."""

    code = Exit.BAD_CONFIG


@dataclass(frozen=True)
class Checkpoint:
    """Result of ``load``."""

    path: Path
    step: int
    tensors: dict[str, Tensor]  # on the CPU
    values: dict[str, Any]
    manifest: dict[str, Any]
    skipped: tuple[str, ...]  # a sentence on each newer checkpoint that was damaged and passed over


def save(
    run_dir: Path,
    step: int,
    tensors: Mapping[str, Tensor],
    values: Mapping[str, Any],
    *,
    architecture: Mapping[str, Any],
    config_digest: str,
    keep: int,
    score: float | None = None,
) -> Path:
    """Write a checkpoint, name it in ``latest``, and remove all but the newest ``keep`` and the best.

    Args:
        run_dir: the run directory.
        step: environment steps done; names the directory.
        tensors: contiguous CPU tensors by name (``Algorithm.state()``).
        values: everything else, as plain data for JSON.
        architecture: the widths that a loader must share, by name.
        config_digest: ``AgentConfig.digest()``.
        keep: number of newest checkpoints to keep.
        score: ranks checkpoints, higher is better; None without an evaluation.

    Raises:
        CheckpointError: disk full or read-only directory, or a tensor isn't finite; the earlier checkpoints are
            unchanged.
    """
    root = run_dir / "checkpoints"
    final = root / f"step-{step:09d}"
    manifest = {
        "format": formats.CHECKPOINT.newest,
        "step": step,
        "architecture": dict(architecture),
        "config_digest": config_digest,
        "score": score,
        "versions": _versions(),
    }
    if broken := _not_finite(tensors):
        raise CheckpointError(
            f"{final}: isn't written, because {broken} holds NaN or infinity: training has diverged, and this driver "
            "can't drive; earlier checkpoints are untouched: resume from them, with a lower learning rate."
        )
    try:
        root.mkdir(parents=True, exist_ok=True)
        publish(final, lambda folder: _write(folder, tensors, values, manifest))
        _prune(root, keep)
    except (OSError, safetensors.SafetensorError) as error:
        size = sum(tensor.nbytes for tensor in tensors.values())
        raise CheckpointError(
            f"{final}: can't be written ({_reason(error)}); earlier checkpoints are untouched: "
            f"free {size / 2**20:.0f} MiB or make the directory writable."
        ) from None
    return final


def load(
    run_dir: Path, architecture: Mapping[str, Any], try_it: Callable[[Checkpoint], object] | None = None
) -> Checkpoint:
    """Return the checkpoint named in ``latest``, or the newest complete one if that is damaged.

    Args:
        run_dir: the run directory.
        architecture: the widths that it must have, by name.
        try_it: raises if the networks can't continue from it; then an older one is taken.

    Raises:
        CheckpointError: there is none, none is complete, or its architecture differs.
        FormatError: another version of this program wrote the newest.
    """
    skipped: list[str] = []
    for path in _all(run_dir / "checkpoints"):
        try:
            checkpoint = _read(path, tuple(skipped))
        except CheckpointError as error:
            skipped.append(str(error))
            continue
        _require_same(path, checkpoint.manifest["architecture"], architecture)
        try:
            _require_fit(checkpoint, try_it)
        except CheckpointError as error:
            skipped.append(str(error))
            continue
        return checkpoint
    if skipped:
        raise CheckpointError(f"{skipped[0]} No older one is whole either.")
    raise CheckpointError(f"{run_dir}: holds no checkpoint: name a run that has one.")


def exists(run_dir: Path) -> bool:
    """Return whether the run has a finished checkpoint, damaged or not."""
    return bool(_all(run_dir / "checkpoints"))


def read(
    path: Path, architecture: Mapping[str, Any], try_it: Callable[[Checkpoint], object] | None = None
) -> Checkpoint:
    """Return one given checkpoint, ``checkpoints/step-…``, verified; the arguments are those of :func:`load`.

    Raises:
        CheckpointError: it is missing, damaged, or of another architecture.
        FormatError: another version of this program wrote it.
    """
    checkpoint = _read(path, ())
    _require_same(path, checkpoint.manifest["architecture"], architecture)
    _require_fit(checkpoint, try_it)
    return checkpoint


def _read(path: Path, skipped: tuple[str, ...]) -> Checkpoint:
    try:
        manifest = json.loads(read_whole(path / _MANIFEST))
        if is_damaged(manifest):
            raise CheckpointError(f"{path / _MANIFEST}: is damaged (its checksum is another); delete {path}.")
        formats.CHECKPOINT.require(path, manifest["format"], inner(manifest, "versions").get(formats.DISTRIBUTION))
        values = read_whole(path / _VALUES)
        # Before its bytes are read: those of a file with a hole of a tebibyte take an hour.
        _require_size(path / _TENSORS, manifest.get("tensor_bytes"))
        for name, found in ((_VALUES, hashlib.sha256(values).hexdigest()), (_TENSORS, _sha256(path / _TENSORS))):
            if found != manifest["sha256"][name]:
                raise CheckpointError(f"{path / name}: is damaged (its SHA-256 is not the manifest's); delete {path}.")
        tensors = safetensors.torch.load_file(path / _TENSORS)
        if broken := _not_finite(tensors):
            raise CheckpointError(
                f"{path}: {broken} holds NaN or infinity, so this driver can't drive; delete it to use an older one."
            )
        manifest["architecture"] = dict(manifest["architecture"])
        return Checkpoint(path, int(manifest["step"]), tensors, dict(json.loads(values)), manifest, skipped)
    except _BROKEN as error:
        _require_memory(error)
        raise CheckpointError(f"{path}: can't be read ({_reason(error)}); delete it to use an older one.") from None


def _require_size(path: Path, written: int | None) -> None:
    """Refuse a file that has another size than it was written with; earlier versions didn't note it."""
    found = path.stat().st_size
    if written not in (None, found):
        raise CheckpointError(
            f"{path}: is damaged (it has {found} bytes, {written} were written); delete {path.parent}."
        )


def _require_same(path: Path, saved: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    meant = legacy_values(AgentConfig)
    for name in sorted({*saved, *wanted}):
        # Through JSON, because tuples come back as lists.
        ours, theirs = json.loads(json.dumps({**meant, **wanted}.get(name))), {**meant, **saved}.get(name)
        if ours != theirs:
            raise CheckpointError(
                f"{path}: was trained with {name} = {theirs}, the configuration says {ours}: set {name} to {theirs}, "
                "or start another run directory."
            )


def _require_fit(checkpoint: Checkpoint, try_it: Callable[[Checkpoint], object] | None) -> None:
    try:
        if try_it is not None:
            try_it(checkpoint)
    except _BROKEN as error:
        _require_memory(error)
        reason = str(error) if type(error) is ValueError else _reason(error)
        raise CheckpointError(
            f"{checkpoint.path}: doesn't fit the networks ({reason}); delete it to use an older one."
        ) from None


def _write(folder: Path, tensors: Mapping[str, Tensor], values: Mapping[str, Any], manifest: Mapping[str, Any]) -> None:
    # From the tensors' own memory to the file: serialising first would need a second copy.
    safetensors.torch.save_file(dict(tensors), folder / _TENSORS)
    sync(folder / _TENSORS)
    write_synced(folder / _VALUES, _json(values))
    sums = {name: _sha256(folder / name) for name in (_TENSORS, _VALUES)}
    size = (folder / _TENSORS).stat().st_size
    write_synced(folder / _MANIFEST, _json(sealed({**manifest, "sha256": sums, "tensor_bytes": size})))


def _all(root: Path) -> list[Path]:
    """Return the folders of checkpoints, the newest first; a user's copies have other names, and stay."""
    return [path for path in newest_first(root, _PATTERN) if _NAME.fullmatch(path.name)]


def _prune(root: Path, keep: int) -> None:
    scores = _scores(root)
    best = sorted(scores, key=lambda path: (scores[path], path.name))[-1:]  # the newest among equals
    keepers = {*_all(root)[:keep], *best}
    for path in _all(root):
        if path not in keepers:
            shutil.rmtree(path, ignore_errors=True)  # the new checkpoint is safe, whatever happens to this one


def _scores(root: Path) -> dict[Path, float]:
    scores = {}
    for path in _all(root):
        with contextlib.suppress(*_BROKEN):
            scores[path] = float(json.loads(read_whole(path / _MANIFEST))["score"])
    return scores


def _require_memory(error: BaseException) -> None:
    """Raise the error again if memory ran out: the checkpoint may be whole, and an older one would lose steps."""
    if is_out_of_memory(error):
        raise error


def _not_finite(tensors: Mapping[str, Tensor]) -> str | None:
    """Return the name of the first tensor that holds NaN or infinity; None if there is none."""
    return next((name for name, each in tensors.items() if not bool(each.isfinite().all())), None)


def _sha256(path: Path) -> str:
    """Return the digest of a file, read in parts."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(2**20):
            digest.update(piece)
    return digest.hexdigest()


def _reason(error: Exception) -> str:
    """Return the system's message; safetensors passes on only its number. One of a text would contain the text."""
    if isinstance(error, UnicodeError):
        return str(error)
    number = error.errno if isinstance(error, OSError) else re.search(r"os error (\d+)", str(error))
    return repr(error) if number is None else os.strerror(int(number if isinstance(number, int) else number[1]))


def _json(plain: Mapping[str, Any]) -> bytes:
    return json.dumps(plain, indent=1).encode()


def _versions() -> dict[str, str]:
    return {
        formats.DISTRIBUTION: formats.version(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "safetensors": safetensors.__version__,
    }
