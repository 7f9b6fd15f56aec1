"""The program behind ``scripts/wait_and_run.sh``: wait for memory, run a command, retry with a smaller batch."""

from __future__ import annotations

import os
import shutil
import sys
import time
from dataclasses import replace
from pathlib import Path

from carla_launcher.observe.pools import Pool
from carla_launcher.plugins.reserve import options
from carla_launcher.plugins.reserve.command import Command
from carla_launcher.plugins.reserve.memory import Memory, UnreadableError, driver_is_there
from carla_launcher.plugins.reserve.options import Options
from carla_run.exits import Exit, ExitError
from carla_run.memory.room import missing
from carla_run.signals import StopRequests

TRAINING = ("-m", "carla_td3", "train")
POLL_S = 0.1


def main() -> int:
    """Run the command line; return the exit code."""
    wanted = _with_a_program(options.parse(sys.argv[1:]))
    if shutil.which(wanted.command[0]) is None:
        _say(f"{wanted.command[0]}: no such program, or it may not be executed; nothing was waited for.")
        return 126 if Path(wanted.command[0]).is_file() else 127
    requests = StopRequests()
    requests.install(closing_terminal=True)
    try:
        vram = wanted.pool == "vram" or (wanted.pool == "auto" and driver_is_there())
        return _Attempts(wanted, Memory(wanted.gpu if vram else None), requests).run()
    except ExitError as error:
        _say(str(error))
        return int(error.code)


class _Attempts:
    """The attempts to run the command: one, or two with ``--fallback-batch``."""

    def __init__(self, wanted: Options, memory: Memory, requests: StopRequests) -> None:
        self._wanted, self._memory, self._requests = wanted, memory, requests
        self._blind = False

    def run(self) -> int:
        """Return the exit code.

        Raises:
            ExitError: the memory can't be read, it didn't come free, or the wait was stopped.
        """
        code, reason = self._attempt({**os.environ})
        if not reason or self._requests.count:
            return code
        reason = f"The command ran out of memory ({reason}{self._holders('; most hold ')})"
        if self._wanted.fallback_batch is None:
            _say(f"{reason}; --fallback-batch would run it once more.")
            return code
        batch = str(self._wanted.fallback_batch)
        _say(f"{reason}; once more with a batch of {batch}.")
        return self._attempt({**os.environ, "AGENT_BATCH": batch, "RL_BATCH_SIZE": batch})[0]

    def _attempt(self, environment: dict[str, str]) -> tuple[int, str]:
        """Return the command's exit code, and why it counts as out of memory; empty if it doesn't."""
        self._wait()
        words = self._wanted.command
        _say(f"{self._wanted.min_free} MiB of {self._memory.name} are free; starting {words[0]}.")
        try:
            command = Command(words, environment)
        except OSError as error:
            _say(f"{words[0]}: can't be started ({error.strerror}).")
            return 126, ""
        code = command.wait(self._requests)
        return code, command.ran_out_of_memory(code)

    def _wait(self) -> None:
        """Wait until the memory is free."""
        wanted, memory = self._wanted, self._memory
        pool, until_s = memory.look(), time.monotonic() + wanted.timeout_s
        if missing(wanted.min_free, pool.total.mib):
            said = f"{memory.name} has {pool.total.mib:.0f} MiB in all, --min-free is {wanted.min_free}."
            raise ExitError(said, Exit.OUT_OF_MEMORY)
        while missing(wanted.min_free, pool.free.mib):
            reason = f"{pool.free.mib:.0f} of {wanted.min_free} MiB are free on {memory.name}"
            reason += self._holders(" (most hold ", ")")
            left_s = until_s - time.monotonic()
            if left_s <= 0:
                said = f"Gave up after {wanted.timeout_s:g} s of waiting: {reason}; the command was not started."
                raise ExitError(said, Exit.OUT_OF_MEMORY)
            _say(f"{time.strftime('%H:%M:%S')} {reason}; looking again in {min(wanted.sleep_s, left_s):g} s.")
            self._sleep(min(wanted.sleep_s, left_s))
            pool = self._look_or_wait(pool, until_s)

    def _look_or_wait(self, before: Pool, until_s: float) -> Pool:
        """Return the pool; while the driver fails, the last one, whose memory wasn't enough.

        Raises:
            UnreadableError: it fails for good, or when the time is over.
        """
        try:
            pool, self._blind = self._memory.look(), False
        except UnreadableError as error:
            if not error.passes or time.monotonic() >= until_s:
                raise
            if not self._blind:
                _say(f"{error} Waiting goes on.")
            self._blind = True
            return before
        return pool

    def _sleep(self, seconds: float) -> None:
        until_s = time.monotonic() + seconds
        while (left_s := until_s - time.monotonic()) > 0:
            if self._requests.count:
                cause = self._requests.cause
                raise ExitError(f"Stopped by {cause} before the command was started.", Exit.STOPPED)
            time.sleep(min(POLL_S, left_s))

    def _holders(self, before: str, after: str = "") -> str:
        """Return the processes that hold most of the memory, as text; empty if unknown."""
        holders = self._memory.biggest()
        return f"{before}{holders}{after}" if holders else ""


def _with_a_program(wanted: Options) -> Options:
    if wanted.command[0].startswith("-"):
        return replace(wanted, command=(sys.executable, *TRAINING, *wanted.command))
    return wanted


def _say(sentence: str) -> None:
    print(f"wait_and_run: {sentence}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
