"""The options of ``scripts/wait_and_run.sh``, and its ``--help``."""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from dataclasses import dataclass

USAGE = "wait_and_run.sh [--min-free MIB] [--sleep S] [--timeout S] [--fallback-batch N] … -- CMD [ARGUMENT …]"
ABOUT = """\
Wait until enough memory is free, then start CMD.

  bash scripts/wait_and_run.sh --min-free 2048 --sleep 300 --timeout 7200 --fallback-batch 2 -- \\
      python scripts/train_td3.py --config lowmem > train.log 2>&1 &

Only options after `--` (`-- --debug`) are options of scripts/train_td3.py, which is then started.
"""
MORE = """\
The memory is not reserved: any process can take free memory. Between the check that finds --min-free MiB free and the
moment when CMD has allocated them (4 to 9 s for a training), another program may take them. CMD then runs out of
memory, and the programs that hold most of it are named. Ctrl-C and SIGTERM are passed on to CMD.

CMD ran out of memory if it ended with exit code 71 (the agent's), with 137 while the kernel killed a process for
memory, or with an allocator's message at the end of standard error and any other code than 2, 65, 69, 70, 75, 130,
137 and 143. With --fallback-batch N, CMD is then started once more, after another wait, with AGENT_BATCH and
RL_BATCH_SIZE set to N.

Exit codes: CMD's own (128 + n if signal n ended it); 2 usage error; 65 the memory can't be read; 71 not enough memory
came free within --timeout, or the machine has less; 75 stopped before CMD was started; 126, 127 CMD can't be started.
"""


@dataclass(frozen=True)
class Options:
    """The options; memory in MiB."""

    min_free: int
    sleep_s: float
    timeout_s: float
    fallback_batch: int | None
    pool: str
    gpu: int
    command: tuple[str, ...]


def parse(arguments: Sequence[str]) -> Options:
    """Return the options. ``--help`` ends the process with code 0, a usage error with code 2."""
    parser = _parser()
    before, after = _split(arguments)
    given = parser.parse_args(before)
    if not after:
        parser.error("no command: expected `-- CMD` after the options")
    del given.settle_s
    return Options(**vars(given), command=after)


def _split(arguments: Sequence[str]) -> tuple[Sequence[str], tuple[str, ...]]:
    if "--" not in arguments:
        return arguments, ()
    at = list(arguments).index("--")
    return arguments[:at], tuple(arguments[at + 1 :])


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        usage=USAGE,
        description=ABOUT,
        epilog=MORE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add(
        "--min-free",
        type=_count,
        default=2048,
        metavar="MIB",
        help="free memory to wait for, in MiB (default %(default)s)",
    )
    add("--sleep", type=_pause, default=300, metavar="S", dest="sleep_s", help="time between two checks (%(default)s)")
    add("--timeout", type=_seconds, default=7200, metavar="S", dest="timeout_s", help="longest wait (%(default)s)")
    add("--fallback-batch", type=_count, metavar="N", help="batch size of a second run if CMD runs out of memory")
    add(
        "--settle",
        type=_pause,
        default=120,
        metavar="S",
        dest="settle_s",
        help="without effect; earlier versions reserved memory",
    )
    add(
        "--pool",
        choices=["auto", "vram", "ram"],
        default="auto",
        help="memory to wait for; auto: vram if there is a GPU",
    )
    add("--gpu", type=_index, default=0, metavar="N", help="index of the GPU in nvidia-smi (%(default)s)")
    return parser


def _count(text: str) -> int:
    return _whole(text, 1)


def _index(text: str) -> int:
    return _whole(text, 0)


def _whole(text: str, least: int) -> int:
    if not text.isdecimal() or int(text) < least:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a whole number from {least} on")
    return int(text)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r}: expected seconds, as 300")
    return seconds


def _pause(text: str) -> float:
    if not (seconds := _seconds(text)):
        raise argparse.ArgumentTypeError("0 is no pause: expected seconds, as 300")
    return seconds
