"""``make soak``'s simulated part: 200 seeds of eight hours, every rung and every cause reached; the record is kept.

The supervisor, diagnosis, policy and ladder are the real ones (tests/unit/launcher/machine.py has what isn't).
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from itertools import repeat
from pathlib import Path

from tests.conftest import REPOSITORY
from tests.unit.launcher.hours import Sweep, live

RECORD = REPOSITORY / "benchmarks" / "results" / "hours.json"


def main() -> int:
    """Run the seeds; return 1 if one got stuck, lost something, or a rung or cause was never reached."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--hours", type=float, default=8.0)
    given = parser.parse_args()
    sweep, failures, began_s = Sweep(), [], time.monotonic()
    with ProcessPoolExecutor() as workers:
        for seed, (lived, failure) in enumerate(workers.map(_one, range(given.seeds), repeat(given.hours))):
            sweep.add(lived)
            if failure:
                failures.append(failure)
                print(f"FAILED {failure}", flush=True)
            if seed % 10 == 9:
                print(f"{seed + 1} seeds, {time.monotonic() - began_s:.0f} s", flush=True)
    print(sweep.table)
    print(f"never reached: {', '.join(sorted(sweep.missed)) or 'nothing'}")
    counted = {
        key: dict(sorted(value.items())) if isinstance(value, Counter) else value for key, value in vars(sweep).items()
    }
    record = {"hours": given.hours, **counted, "never_reached": sorted(sweep.missed), "failures": failures}
    RECORD.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    return 1 if failures or sweep.missed else 0


def _one(seed: int, hours: float) -> tuple[Sweep, str]:
    """Return what one seed reached, and why it failed, empty if it didn't."""
    sweep = Sweep()
    with tempfile.TemporaryDirectory() as folder:
        try:
            live(Path(folder) / "run", seed, sweep, hours)
        except AssertionError as error:
            return sweep, str(error).splitlines()[0]
    return sweep, ""


if __name__ == "__main__":
    sys.exit(main())
