"""Two accounts on one machine with one card: what each sees of the other's run, and what it can't do to it."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from carla_launcher import config, down
from carla_launcher import up as up_command
from carla_launcher.observe.gpu_lock import lock_gpu
from carla_launcher.plugins.page import live_page
from carla_launcher.plugins.slurm import submit as slurm
from carla_launcher.show.status import status
from carla_launcher.simulator import MAX_SLOTS, SLOT, _slot
from carla_run import requests
from carla_run.files import write_whole
from carla_run.locks import Lock, is_held
from carla_run.paths import RunPaths
from tests.accounts import ALICE, BOB, as_user, meanwhile, needs_root, refusal

pytestmark = needs_root
LIMITS = config.load()


@pytest.fixture
def run(shared: Path) -> RunPaths:
    return RunPaths(shared / "runs" / "night")


def begin(run: RunPaths, umask: int = 0o022) -> Any:
    """Hold a run as its launcher does, with a learner that runs; return what is to be kept for that."""
    os.umask(umask)
    holds = up_command.locked(run, LIMITS)
    lock = holds.__enter__()
    write_whole(run.launcher_state, "{}")
    return holds, lock, Lock(run.learner_lock)


# The card


def hold_the_card(shared: Path) -> Lock:
    return lock_gpu("GPU-1", "night", shared)


def test_the_second_account_is_told_whose_process_holds_the_card(shared: Path) -> None:
    with meanwhile(ALICE, lambda: hold_the_card(shared)) as (alice, _):
        said = as_user(BOB, lambda: refusal(lambda: hold_the_card(shared)))
        assert f"held by another launcher (process {alice} of {ALICE}, " in said
        assert "run night): wait until it ends, share the GPU with --share-gpu" in said
    assert as_user(BOB, lambda: refusal(lambda: hold_the_card(shared))) == ""


def test_a_word_that_another_account_wrote_into_the_lock_isnt_believed(shared: Path) -> None:
    def hold() -> Lock:
        lock = hold_the_card(shared)
        os.pwrite(lock.descriptor, f"process 1 of root, run driver-update{' ' * 80}".encode(), 0)
        return lock

    with meanwhile(ALICE, hold) as (alice, _):
        said = as_user(BOB, lambda: refusal(lambda: hold_the_card(shared)))
    assert f"a process that doesn't call itself a launcher (process {alice} of {ALICE}, " in said
    assert "driver-update" not in said


@pytest.mark.parametrize("share_gpu", [False, True])
def test_the_second_account_goes_on_beside_the_first_only_if_it_asks_for_that(shared: Path, share_gpu: bool) -> None:
    memory: Any = SimpleNamespace(hold=lambda _: hold_the_card(shared))
    said: list[str] = []

    def start() -> None:
        with up_command.cards_held(memory, (0,), share_gpu, said.append) as held:
            said.append(f"started with {len(held)} locks")

    def ask() -> list[str]:
        return [refusal(start), *said]

    with meanwhile(ALICE, lambda: hold_the_card(shared)):
        refused, *found = as_user(BOB, ask)
    if share_gpu:
        assert refused == ""
        assert found[0].startswith("shares the GPU (--share-gpu): GPU GPU-1 is held by another launcher (")
        assert found[1] == "started with 0 locks"
    else:
        assert "--share-gpu" in refused
        assert found == []


def test_what_another_account_laid_in_place_of_a_simulator_s_slot_is_passed_over(
    shared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(shared))

    def number() -> int:
        with _slot() as found:
            return found

    def lay() -> None:
        for each in range(MAX_SLOTS):
            (shared / SLOT.format(each)).mkdir()

    as_user(ALICE, lay)
    assert "remove those that no simulator uses" in as_user(BOB, lambda: refusal(number))
    as_user(ALICE, (shared / SLOT.format(7)).rmdir)
    assert as_user(BOB, number) == 7


# The run


@pytest.mark.parametrize("umask", [0o000, 0o022])
def test_a_run_is_its_owner_s_to_write_and_to_lock_and_everyone_s_to_look_at(run: RunPaths, umask: int) -> None:
    with meanwhile(ALICE, lambda: begin(run, umask)):
        modes = {
            path: path.stat().st_mode & 0o777 for path in (run.path, run.logs, run.launcher_lock, run.learner_lock)
        }
        assert list(modes.values()) == [0o755, 0o755, 0o600, 0o600]
        assert as_user(BOB, lambda: refusal(lambda: Lock(run.launcher_lock))) == "PermissionError"
        assert as_user(BOB, lambda: refusal(lambda: os.open(run.learner_lock, os.O_RDONLY))) == "PermissionError"
        assert as_user(BOB, lambda: [status(run, 0.0)["alive"], is_held(run.learner_lock)]) == [True, True]
    assert as_user(BOB, lambda: [status(run, 0.0)["alive"], is_held(run.learner_lock)]) == [False, False]


def test_a_lock_of_an_earlier_version_is_closed_to_others_when_it_is_taken(run: RunPaths) -> None:
    run.path.mkdir(parents=True)
    run.launcher_lock.touch(0o644)
    Lock(run.launcher_lock).release()
    assert run.launcher_lock.stat().st_mode & 0o777 == 0o600


def test_another_account_can_neither_stop_a_run_nor_ask_or_start_anything_in_it_and_is_told_so(run: RunPaths) -> None:
    with meanwhile(ALICE, lambda: begin(run)) as (alice, _):
        said = as_user(BOB, lambda: refusal(lambda: down.run(run, LIMITS)))
        assert said == f"{run.path} is another user's run (process {alice} of {ALICE}): ask that user to stop it."
        assert "can't be written (Permission denied)" in as_user(
            BOB, lambda: refusal(lambda: requests.send(run, "stop", {}))
        )
        assert "can't be written (Permission denied)" in as_user(BOB, lambda: refusal(lambda: begin(run)))
        assert "can't be written (Permission denied)" in as_user(BOB, lambda: refusal(lambda: slurm.submit(run, "")))


def test_the_page_s_address_is_for_the_account_that_serves_it(run: RunPaths) -> None:
    def serve() -> Any:
        kept = begin(run), live_page._address(run, live_page._listening(0), lambda _: None, False)
        return kept, kept[1].__enter__()

    with meanwhile(ALICE, serve):
        assert run.page_address.stat().st_uid == ALICE
        assert as_user(BOB, lambda: refusal(run.page_address.read_text)) == "PermissionError"
        assert "?token=" in as_user(ALICE, run.page_address.read_text)
