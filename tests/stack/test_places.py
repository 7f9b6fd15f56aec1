"""A container with existing folders: another user's runs, and the allocator's setting."""

from __future__ import annotations

import os

import pytest

from carla_run.exits import Exit
from carla_td3.memory.allocator import SHIPPED, VARIABLES
from tests.stack.conftest import StartStack
from tests.stack.stack import CALLER
from tests.wire.trainee import SMALL

pytestmark = [pytest.mark.stack, pytest.mark.timeout(1500)]

ALONE = ("run", "--rm", "--no-deps", "agent", "python")
FILM = ("scripts/test_visual_navigation.py", "--steps", "10")
TRAIN = ("scripts/train_td3.py", "--resume")
JUDGE = ("scripts/evaluate_td3.py", "--drivers", "stop", "--json", "runs/found/all.json")
COMMANDS = (
    pytest.param(FILM, id="film", marks=pytest.mark.long),
    pytest.param(TRAIN, id="train"),
    pytest.param(JUDGE, id="judge", marks=pytest.mark.long),
)


@pytest.mark.parametrize("words", COMMANDS)
def test_somebody_else_s_runs_are_one_sentence(start_stack: StartStack, words: tuple[str, ...]) -> None:
    if os.getuid() != 0:
        pytest.skip("only root can make a folder that isn't the caller's")
    stack = start_stack(SMALL)
    for path in (stack.runs, stack.run.path):
        os.chown(path, 0, 0)
    ended = stack.compose(*ALONE, *words, check=False)
    assert ended.returncode == Exit.BAD_CONFIG, ended.stderr
    (line,) = [line for line in ended.stderr.splitlines() if "Permission denied" in line]
    assert f"belongs to root (0) and this runs as user {CALLER}: `sudo chown -R {CALLER}:{CALLER} runs" in line
    assert "Traceback" not in ended.stderr


@pytest.mark.long
def test_any_command_in_the_container_has_the_allocator_s_setting(start_stack: StartStack) -> None:
    shown = f"import os, torch; torch.zeros(1); print(*map(os.environ.get, {VARIABLES}))"
    ended = start_stack(SMALL).compose(*ALONE, "-c", shown)
    assert ended.stdout.split() == [SHIPPED] * 2
    assert "arn" not in ended.stderr  # neither Warning nor warn
