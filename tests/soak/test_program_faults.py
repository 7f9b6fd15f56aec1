"""Programs that know nothing of the launcher, under faults of all kinds: what each fault costs, and what is left."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY
from tests.control_group import Group
from tests.soak.program_faults import QUICK, struck
from tests.wire.launched import own_limits

pytestmark = [pytest.mark.long, pytest.mark.timeout(3600)]

SB3 = r"""
resume: {words: [--load, "{checkpoint}"], checkpoint: "checkpoints/rl_model_*_steps.zip"}
done: {file: model.zip}
alive: {log: 'total_timesteps\s*\|\s*(\d+)', within_s: 120}
"""
ONE_FILE = "done: {log: steps; the weights are in}\n"
LIFE = "stop_grace_s: 5\nsimulator_hangs_after_s: 12\n"
EVERY = 40


@pytest.fixture
def group() -> Iterator[Group]:
    """A control group of memory."""
    with contextlib.closing(Group.or_skip()) as made:
        yield made


def problems(group: Group, folder: Path, program: str, *command: str, every: int, resumes: bool) -> list[str]:
    """Return what was lost of a program among all faults, or left running."""
    (folder / "train.yaml").write_text(program + LIFE)
    where = ("--simulator", "carla-lite", "--cwd", str(folder), "--program", str(folder / "train.yaml"))
    words = (*own_limits(folder, QUICK), *where, "--", *command)
    return struck(group, folder, words, every=every, resumes=resumes).problems


def test_stable_baselines3_repeats_what_lay_past_its_checkpoint(group: Group, tmp_path: Path) -> None:
    pytest.importorskip("stable_baselines3")
    script = (sys.executable, str(REPOSITORY / "tests" / "soak" / "sb3_training.py"), "--port", "{port}")
    sizes = ("--every", str(EVERY), "--steps", "1500")
    assert problems(group, tmp_path, SB3, *script, *sizes, every=EVERY, resumes=True) == []


def test_one_file_without_resume_begins_again(group: Group, tmp_path: Path) -> None:
    """It reports its steps by the library."""
    sizes = ("--steps", "300", "--warm-up", "20", "--batch", "4", "--capacity", "500", "--weights", "sac.pt")
    script = (sys.executable, str(REPOSITORY / "examples" / "sac_single_file.py"))
    assert problems(group, tmp_path, ONE_FILE, *script, *sizes, every=EVERY, resumes=False) == []
