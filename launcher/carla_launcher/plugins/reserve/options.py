"""The options of ``scripts/wait_and_run.sh``, and what its ``--help`` says."""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from dataclasses import dataclass

USAGE = "wait_and_run.sh [--min-free MIB] [--sleep S] [--timeout S] [--fallback-batch N] … -- CMD [ARGUMENT …]"
ABOUT = """\
Wait until enough memory is free, and start CMD at once.

  bash scripts/wait_and_run.sh --min-free 2048 --sleep 300 --timeout 7200 --fallback-batch 2 -- \\
      python scripts/train_td3.py --config lowmem > train.log 2>&1 &

Options without a command after `--` (`-- --debug`) are meant for scripts/train_td3.py.
"""
MORE = """\
No program can give memory to another one, it can only free it, and what is free any process can take. So nothing is
held: from the look that finds --min-free MiB free until CMD has them (a training takes 4 to 9 s), another program
can be faster. Then CMD runs out of memory, and who holds most is named. Ctrl-C and SIGTERM are passed on to CMD.

Out of memory is: exit code 71 (the agent's), 137 while the kernel killed a process for memory, or a failure with an
allocator's complaint at the end of standard error and none of the codes 2, 65, 69, 70, 75, 130, 137, 143, which mean
something else. Then --fallback-batch waits again, and runs CMD once more with AGENT_BATCH and RL_BATCH_SIZE set to it.

Exit code: CMD's own (128 + n if signal n ended it) · 2 usage · 65 the memory can't be read · 71 it didn't come free
within --timeout, or there isn't as much in all · 75 stopped before CMD was started · 126, 127 CMD can't be started.
"""


@dataclass(frozen=True)
class Options:
    """What was asked for; amounts in MiB."""

    min_free: int
    sleep_s: float
    timeout_s: float
    fallback_batch: int | None
    pool: str
    gpu: int
    command: tuple[str, ...]


def parse(arguments: Sequence[str]) -> Options:
    """Return the options; ends the process with code 0 for ``--help`` and 2 for what is wrong."""
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
        usage=USAGE, description=ABOUT, epilog=MORE, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--min-free", type=_count, default=2048, metavar="MIB", help="wait for as many MiB (default %(default)s)")
    add("--sleep", type=_pause, default=300, metavar="S", dest="sleep_s", help="between two looks (%(default)s)")
    add("--timeout", type=_seconds, default=7200, metavar="S", dest="timeout_s", help="of a wait (%(default)s)")
    add("--fallback-batch", type=_count, metavar="N", help="batch of a second run, after the first ran out of memory")
    add(
        "--settle",
        type=_pause,
        default=120,
        metavar="S",
        dest="settle_s",
        help="without effect: nothing is held any more",
    )
    add("--pool", choices=["auto", "vram", "ram"], default="auto", help="which memory; auto: vram where there is a GPU")
    add("--gpu", type=_index, default=0, metavar="N", help="as nvidia-smi counts (%(default)s)")
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
