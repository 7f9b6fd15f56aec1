"""``make verify-gpu``: runs on your GPU what we couldn't run, and writes one file to send back.

Owns the command line. With a GPU and CARLA it runs everything (``verify_with_carla``); with only a GPU it runs the
parts that need no CARLA (``verify_without_carla``). It imports nothing that must be installed, so that the second way
works with any interpreter.
"""

from __future__ import annotations

import argparse
import signal
from pathlib import Path
from typing import NoReturn

import verify_without_carla


def main() -> int:
    """Return the exit code: 0 all passed, 1 a step failed (send the file), 2 and 65 wrong options, 69 no GPU."""
    given = _parser().parse_args()
    signal.signal(signal.SIGTERM, _leave)
    if given.no_carla or given.part:
        return verify_without_carla.main(given.runs_dir, given.part, given.gpu, given.device)
    import verify_with_carla  # needs the launcher's packages

    return verify_with_carla.main(given.runs_dir, given.launcher_config, given.gpu, given.steps)


def _leave(number: int, _: object) -> NoReturn:
    """Exit in order on SIGTERM: the running step is ended, and the results so far go into the file."""
    raise SystemExit(128 + number)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
        description="Run the checks that need a GPU and CARLA, and write one file to send back. The file names no\n"
        "user and no machine.",
        epilog="If CARLA_HOST is set, the CARLA at CARLA_HOST:CARLA_PORT is used. Otherwise CARLA is started, by\n"
        "simulator.command of the launcher's configuration or by Docker. Exit codes: 0 all passed, 1 a step failed\n"
        "(send the file), 2 and 65 wrong options, 69 no GPU, or no CARLA without --no-carla.",
    )
    parser.add_argument("--runs-dir", type=Path, default=Path("runs"), help="folder for the file")
    parser.add_argument("--gpu", type=_count, default=0, help="index of the GPU")
    parser.add_argument("--no-carla", action="store_true", help="run only the parts that need neither CARLA nor Docker")
    parts = tuple(verify_without_carla.PARTS)
    parser.add_argument(
        "--part", action="append", choices=parts, default=[], help="run only this part of --no-carla; can be repeated"
    )
    parser.add_argument("--launcher-config", type=Path, help="the launcher's configuration; with CARLA only")
    parser.add_argument("--steps", type=_count, default=1_000, help="steps of the training run; with CARLA only")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help=argparse.SUPPRESS)  # cpu: for tests
    return parser


def _count(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number of 0 or more")
    return int(text)


if __name__ == "__main__":
    raise SystemExit(main())
