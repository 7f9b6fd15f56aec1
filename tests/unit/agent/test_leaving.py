"""A process that has to leave from a thread leaves, though nothing takes its last words any more."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import NoReturn

import pytest

from carla_run.exits import Exit
from carla_td3.cli import evaluation
from carla_td3.collector import collector


def full_disk(_: str) -> NoReturn:
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize(
    ("leave", "code"),
    [
        (lambda: evaluation._only_once(evaluation._give_up)("It is silent."), Exit.NO_SIMULATOR),
        (lambda: evaluation._only_once(full_disk)("It is silent."), Exit.NO_SIMULATOR),
        (collector._leave, Exit.CRASH),
    ],
)
def test_it_leaves_with_its_output_closed(leave: Callable[[], None], code: Exit) -> None:
    child = os.fork()
    if child == 0:
        try:
            os.close(2)
            sys.stdout = os.fdopen(os.open("/dev/full", os.O_WRONLY), "w")
            leave()
        finally:
            os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == code
