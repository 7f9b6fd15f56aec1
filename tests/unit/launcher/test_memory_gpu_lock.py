"""One launcher a GPU: the second one is told which holds it, and nothing that is left over is in the way."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from carla_launcher.observe.gpu_lock import GpuInUseError, lock_gpu
from carla_run.locks import is_held
from tests.crowd import until

HOLD = """
import os, sys
from pathlib import Path
from carla_launcher.observe.gpu_lock import lock_gpu, GpuInUseError
os.umask(0o077)
if len(sys.argv) > 3:  # no sooner: another user may not be allowed to run this Python
    os.setuid(int(sys.argv[3]))
try:
    lock = lock_gpu("GPU-1", sys.argv[1], Path(sys.argv[2]))
except GpuInUseError as error:
    print(error, flush=True)
else:
    print("held", flush=True)
    sys.stdin.read()
"""
UNPRIVILEGED = 65534


class Launcher:
    """Another launcher that takes the GPU, of another user if one is given."""

    def __init__(self, run: str, directory: Path, user: int | None = None) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", HOLD, run, str(directory), *([str(user)] if user else [])],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout
        self.said = self.process.stdout.readline().strip()

    def end(self, how: signal.Signals = signal.SIGKILL) -> None:
        self.process.send_signal(how)
        self.process.communicate()


def test_a_second_launcher_is_told_who_holds_the_gpu_and_may_have_another(shared: Path) -> None:
    first = Launcher("night", shared)
    with pytest.raises(GpuInUseError) as refused:
        lock_gpu("GPU-1", "day", shared)
    lock_gpu("GPU-2", "day", shared).release()
    first.end()
    said = str(refused.value)
    assert said.startswith(f"GPU GPU-1 is held by another launcher (process {first.process.pid} of ")
    assert " min old, run night): wait until it ends, share the GPU with --share-gpu, or " in said


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_a_launcher_that_has_ended_however_is_in_no_one_s_way(shared: Path, how: signal.Signals) -> None:
    Launcher("a long name that the next one is shorter than", shared).end(how)
    lock = lock_gpu("GPU-1", "day", shared)
    second = Launcher("night", shared)
    assert second.said.endswith("or use a simulator without a GPU (agent: --device cpu).")
    assert "run day): wait" in second.said
    lock.release()
    second.end()


def test_the_gpu_stays_taken_while_a_process_shim_of_the_run_lives(shared: Path) -> None:
    lock = lock_gpu("GPU-1", "night", shared)
    with subprocess.Popen(["sleep", "60"], pass_fds=(lock.descriptor,)) as shim:
        lock.release()
        with pytest.raises(GpuInUseError, match="run night"):
            lock_gpu("GPU-1", "day", shared)
        shim.kill()
    lock_gpu("GPU-1", "day", shared).release()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can start a launcher of another user")
@pytest.mark.parametrize("first", [None, UNPRIVILEGED])
def test_another_user_s_lock_is_respected_and_their_file_used_again(shared: Path, first: int | None) -> None:
    holder = Launcher("night", shared, user=first)
    assert holder.said == "held"
    other = Launcher("day", shared, user=None if first else UNPRIVILEGED)
    assert f"process {holder.process.pid} of " in other.said
    holder.end()
    again = Launcher("day", shared, user=None if first else UNPRIVILEGED)
    assert again.said == "held"
    again.end()


def test_a_file_deleted_just_before_it_was_locked_is_made_anew(shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lock = fcntl.flock
    cleaned: list[Path] = []

    def clean_and_lock(descriptor: int, how: int) -> None:
        if not cleaned:
            cleaned.append(next(shared.iterdir()))
            cleaned[0].unlink()
        lock(descriptor, how)

    monkeypatch.setattr(fcntl, "flock", clean_and_lock)
    held = lock_gpu("GPU-1", "day", shared)
    with pytest.raises(GpuInUseError, match="run day"):
        lock_gpu("GPU-1", "night", shared)
    held.release()
    assert cleaned


@pytest.mark.parametrize("kind", ["link", "fifo", "folder"])
def test_what_somebody_laid_in_its_place_is_refused_and_left_alone(shared: Path, kind: str) -> None:
    place, precious = shared / "carla-td3-GPU-1.lock", shared / "precious"
    precious.write_text("keep me")
    if kind == "link":
        place.symlink_to(precious)
    elif kind == "fifo":
        os.mkfifo(place)
    else:
        place.mkdir()
    with pytest.raises(GpuInUseError, match=r"can't be opened \(.+\): remove it if no launcher runs.*--share-gpu"):
        lock_gpu("GPU-1", "night", shared)
    assert precious.read_text() == "keep me"


def test_whoever_holds_the_lock_without_a_word_is_named_by_the_kernel_s(shared: Path) -> None:
    """Any user can, for ever; what the file says is the last launcher's, or whatever a user wrote there."""
    lock_gpu("GPU-1", "night", shared).release()
    (place,) = shared.iterdir()
    program = "import fcntl, sys, time; file = open(sys.argv[1]); fcntl.flock(file, fcntl.LOCK_EX); time.sleep(600)"
    with subprocess.Popen([sys.executable, "-c", program, str(place)]) as other:
        until(lambda: is_held(place))
        with pytest.raises(GpuInUseError) as refused:
            lock_gpu("GPU-1", "day", shared)
        assert f"held by a process that doesn't call itself a launcher (process {other.pid} of " in str(refused.value)
        assert " min old): wait until it ends, share the GPU with --share-gpu" in str(refused.value)
        other.kill()


def test_control_characters_of_another_user_don_t_reach_the_terminal(shared: Path) -> None:
    lock = lock_gpu("GPU-1", "night", shared)
    os.pwrite(lock.descriptor, b"process %d of me, run \x1b[2Jboo\x07\n" % os.getpid() + b"x" * 5000, 0)
    with pytest.raises(GpuInUseError) as refused:
        lock_gpu("GPU-1", "day", shared)
    lock.release()
    assert "\x1b" not in str(refused.value)
    assert "boo" in str(refused.value)
    assert len(str(refused.value)) < 400
