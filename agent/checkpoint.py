"""Checkpoints of a run: complete or absent, verified when loaded, nothing unpickled.

Owns ``checkpoints/step-000120000/`` and ``checkpoints/latest`` in a run directory. Knows tensors by name and everything
else as plain data; what they mean is the learner's business.

A directory holds ``tensors.safetensors``, ``values.json`` (counters, random states) and ``manifest.json`` (step,
architecture, configuration digest, versions, score, and the other files' SHA-256). It is written under a temporary
name, synced, renamed, and only then named in ``latest``.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import safetensors.torch
import torch
from torch import Tensor

_TENSORS, _VALUES, _MANIFEST, _LATEST = "tensors.safetensors", "values.json", "manifest.json", "latest"
_FORMAT = 1


class CheckpointError(Exception):
    """A checkpoint that can't be written or used; the message is one sentence for a person."""


@dataclass(frozen=True)
class Checkpoint:
    """What ``load`` found."""

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
        tensors: CPU tensors by name (``TD3.state()``).
        values: everything else, as plain data for JSON.
        architecture: the widths that a loader must share, by name.
        config_digest: ``AgentConfig.digest()``.
        keep: how many of the newest stay.
        score: what "best" means, higher is better; None where nothing was evaluated.

    Raises:
        CheckpointError: disk full, read-only directory; the earlier checkpoints are as they were.
    """
    root = run_dir / "checkpoints"
    final = root / f"step-{step:09d}"
    files = {_TENSORS: safetensors.torch.save(dict(tensors)), _VALUES: _json(values)}
    manifest = {
        "format": _FORMAT,
        "step": step,
        "architecture": dict(architecture),
        "config_digest": config_digest,
        "score": score,
        "versions": _versions(),
        "sha256": {name: hashlib.sha256(content).hexdigest() for name, content in files.items()},
    }
    try:
        root.mkdir(parents=True, exist_ok=True)
        _publish(root, final, {**files, _MANIFEST: _json(manifest)})
        _prune(root, keep)
    except OSError as error:
        raise CheckpointError(
            f"{final}: can't be written ({error.strerror or error}); earlier checkpoints are untouched: "
            f"free {sum(map(len, files.values())) / 2**20:.0f} MiB or make the directory writable."
        ) from None
    return final


def load(run_dir: Path, architecture: Mapping[str, Any]) -> Checkpoint:
    """Return the checkpoint that ``latest`` names, or the newest whole one where that is damaged.

    Raises:
        CheckpointError: there is none, none is whole, or it is of another architecture.
    """
    skipped: list[str] = []
    for path in _newest_first(run_dir / "checkpoints"):
        try:
            checkpoint = _read(path, tuple(skipped))
        except CheckpointError as error:
            skipped.append(str(error))
            continue
        _require_same(path, checkpoint.manifest["architecture"], architecture)
        return checkpoint
    if skipped:
        raise CheckpointError(f"{skipped[0]} No older one is whole either.")
    raise CheckpointError(f"{run_dir}: holds no checkpoint; start without --resume, or name the run that has one.")


def exists(run_dir: Path) -> bool:
    """Return whether the run has a finished checkpoint, whole or not."""
    return bool(_newest_first(run_dir / "checkpoints"))


def read(path: Path, architecture: Mapping[str, Any]) -> Checkpoint:
    """Return one given checkpoint, ``checkpoints/step-…``, verified.

    Raises:
        CheckpointError: it is missing, damaged, or of another architecture.
    """
    checkpoint = _read(path, ())
    _require_same(path, checkpoint.manifest["architecture"], architecture)
    return checkpoint


def _read(path: Path, skipped: tuple[str, ...]) -> Checkpoint:
    try:
        manifest = json.loads((path / _MANIFEST).read_bytes())
        if manifest["format"] != _FORMAT:
            raise CheckpointError(f"{path}: has format {manifest['format']}, expected {_FORMAT}; use its own version.")
        content = {name: (path / name).read_bytes() for name in (_TENSORS, _VALUES)}
        for name, data in content.items():
            if hashlib.sha256(data).hexdigest() != manifest["sha256"][name]:
                raise CheckpointError(f"{path / name}: is damaged (its SHA-256 is not the manifest's); delete {path}.")
        tensors = safetensors.torch.load(content[_TENSORS])
        values = json.loads(content[_VALUES])
        return Checkpoint(path, int(manifest["step"]), tensors, values, manifest, skipped)
    except (OSError, ValueError, KeyError, TypeError, safetensors.SafetensorError) as error:
        reason = error.strerror if isinstance(error, OSError) else repr(error)
        raise CheckpointError(f"{path}: can't be read ({reason}); delete it to use an older one.") from None


def _require_same(path: Path, saved: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    for name in sorted({*saved, *wanted}):
        # Through JSON, for tuples come back as lists.
        ours, theirs = json.loads(json.dumps(wanted.get(name))), saved.get(name)
        if ours != theirs:
            raise CheckpointError(
                f"{path}: was trained with {name} = {theirs}, the configuration says {ours}: "
                f"set {name} to {theirs}, or start another run directory."
            )


def _publish(root: Path, final: Path, files: Mapping[str, bytes]) -> None:
    for leftover in (*root.glob(".new-*"), *root.glob(".old-*")):  # of a run that was killed here
        shutil.rmtree(leftover)
    temporary, replaced = root / f".new-{final.name}", root / f".old-{final.name}"
    try:
        temporary.mkdir()
        for name, content in files.items():
            _write_synced(temporary / name, content)
        _sync_directory(temporary)
        if final.exists():  # the same step again, after a resume that did not get further
            final.rename(replaced)
        temporary.rename(final)
        _sync_directory(root)
        _write_synced(root / f".{_LATEST}", final.name.encode() + b"\n")
        (root / f".{_LATEST}").replace(root / _LATEST)
        _sync_directory(root)
    except OSError:
        _undo(temporary, replaced, final)
        raise
    shutil.rmtree(replaced, ignore_errors=True)


def _undo(temporary: Path, replaced: Path, final: Path) -> None:
    with contextlib.suppress(OSError):
        shutil.rmtree(temporary, ignore_errors=True)
        if replaced.exists() and not final.exists():
            replaced.rename(final)


def _prune(root: Path, keep: int) -> None:
    scores = _scores(root)
    best = sorted(scores, key=lambda path: (scores[path], path.name))[-1:]  # the newest among equals
    keepers = {*_newest_first(root)[:keep], *best}
    for path in _newest_first(root):
        if path not in keepers:
            shutil.rmtree(path, ignore_errors=True)  # the new checkpoint stands, whatever happens to this one


def _newest_first(root: Path) -> list[Path]:
    """Return the finished checkpoints, the one that ``latest`` names first, then by falling step."""
    found = sorted(root.glob("step-*"), reverse=True)
    with contextlib.suppress(OSError):
        latest = root / (root / _LATEST).read_text(encoding="utf-8").strip()
        found.sort(key=lambda path: path != latest)
    return found


def _scores(root: Path) -> dict[Path, float]:
    scores = {}
    for path in _newest_first(root):
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            scores[path] = float(json.loads((path / _MANIFEST).read_bytes())["score"])
    return scores


def _write_synced(path: Path, content: bytes) -> None:
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _json(plain: Mapping[str, Any]) -> bytes:
    return json.dumps(plain, indent=1).encode()


def _versions() -> dict[str, str]:
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "safetensors": safetensors.__version__,
    }
