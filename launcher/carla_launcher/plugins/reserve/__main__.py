"""What ``scripts/wait_and_run.sh`` runs: wait, hold, start the command, hand over; once more with a smaller batch."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from carla_launcher.plugins.reserve import options, waiting
from carla_launcher.plugins.reserve.command import Command
from carla_launcher.plugins.reserve.hand_over import Handover, HandoverOptions
from carla_launcher.plugins.reserve.memory import Gpu, Memory, Ram, UnreadableError, driver_is_there
from carla_launcher.plugins.reserve.options import Options
from carla_run.exits import Exit
from carla_run.held_memory import VARIABLE, write_held
from carla_run.signals import StopRequests

TRAINING = ("-m", "carla_td3", "train")


def main() -> int:
    """Do what the command line says; return the exit code."""
    wanted = _with_a_program(options.parse(sys.argv[1:]))
    if shutil.which(wanted.command[0]) is None:
        _say(f"{wanted.command[0]}: no such program, or it may not be executed; nothing was waited for.")
        return 126 if Path(wanted.command[0]).is_file() else 127
    requests = StopRequests()
    requests.install(closing_terminal=True)
    try:
        memory = _memory(wanted)
        _refuse_what_never_fits(wanted, memory)
        return _attempts(wanted, memory, requests)
    except UnreadableError as error:
        return _end(str(error), Exit.BAD_CONFIG)
    except waiting.TimedOutError as error:
        return _end(str(error), Exit.OUT_OF_MEMORY)
    except waiting.StoppedError:
        return _end(f"Stopped by {requests.cause} before the command was started.", Exit.STOPPED)


def _attempts(wanted: Options, memory: Memory, requests: StopRequests) -> int:
    how = HandoverOptions(wanted.settle_s)
    with tempfile.TemporaryDirectory(prefix="wait_and_run-") as folder:
        environment = {**os.environ, VARIABLE: str(Path(folder) / "held.json")}
        code, reason, held = _attempt(wanted, memory, requests, how, environment)
        if not reason or requests.count:
            return code
        if wanted.fallback_batch is None:
            return _end(f"The command ran out of memory ({reason}); --fallback-batch would run it once more.", code)
        batch = str(wanted.fallback_batch)
        how = replace(how, at_once=held > 0)
        at_once = (
            f" {held:.0f} MiB were still held for it: this time it gets all when it begins to take." if held else ""
        )
        _say(f"The command ran out of memory ({reason}); once more with a batch of {batch}.{at_once}")
        environment |= {"AGENT_BATCH": batch, "RL_BATCH_SIZE": batch}
        return _attempt(wanted, memory, requests, how, environment)[0]


def _attempt(
    wanted: Options, memory: Memory, requests: StopRequests, how: HandoverOptions, environment: dict[str, str]
) -> tuple[int, str, float]:
    """Return the command's exit code, why it counts as out of memory if it does, and the MiB that were still held."""
    times = (wanted.sleep_s, wanted.timeout_s)
    held = waiting.wait(memory, wanted.min_free, *times, _say, lambda: requests.count > 0)
    notice = Path(environment[VARIABLE])
    try:
        write_held(notice, memory.gpu, held.mib)
        _say(f"{wanted.min_free} MiB of {memory.name} are held; starting {wanted.command[0]}.")
        command = Command(wanted.command, environment)
    except OSError as error:
        held.hold.close()
        return _end(f"{wanted.command[0]}: can't be started ({error.strerror}).", 126), "", 0.0
    code, left = Handover(memory, held, command, how, notice, _say).run(requests)
    return code, command.ran_out_of_memory(code), left


def _with_a_program(wanted: Options) -> Options:
    if wanted.command[0].startswith("-"):
        return replace(wanted, command=(sys.executable, *TRAINING, *wanted.command))
    return wanted


def _memory(wanted: Options) -> Memory:
    if wanted.pool == "vram" or (wanted.pool == "auto" and driver_is_there()):
        return Gpu(wanted.gpu)
    return Ram()


def _refuse_what_never_fits(wanted: Options, memory: Memory) -> None:
    if wanted.min_free > memory.total:
        raise waiting.TimedOutError(
            f"{memory.name} has {memory.total:.0f} MiB in all, --min-free is {wanted.min_free}."
        )


def _say(sentence: str) -> None:
    print(f"wait_and_run: {sentence}", file=sys.stderr, flush=True)


def _end(sentence: str, code: int) -> int:
    _say(sentence)
    return int(code)


if __name__ == "__main__":
    sys.exit(main())
