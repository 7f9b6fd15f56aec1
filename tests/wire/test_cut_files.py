"""A file that is cut short under a running training ends its learner by SIGBUS: that has one name, and a cure."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from carla_run.exits import Exit
from carla_run.paths import RunPaths
from tests.wire.launched import ENDLESS, Launched, first_time


def test_a_ring_that_is_cut_short_in_mid_run_is_named_and_every_row_that_it_still_has_is_used(tmp_path: Path) -> None:
    launched = Launched(tmp_path)
    try:
        launched.up(*first_time(tmp_path, ENDLESS), "--simulator", "carla-lite")
        launched.until_training()
        rows = RunPaths(launched.run).replay / "rows.bin"
        os.truncate(rows, 4096)
        output = launched.output()
        assert launched.process.returncode == Exit.BAD_CONFIG, output
        assert "the agent crashed (signal 7): SIGBUS, a page of a mapped file couldn't be read or written" in output
        (refused,) = (line for line in output.splitlines() if line.startswith(f"{rows}: "))
        assert "the file is cut short to 4096 of " in refused
        assert launched.state["reason"].endswith(refused.rstrip(".")), "status and report say it, too"
        subprocess.run(refused.split("`")[1], shell=True, check=True)
        before = launched.beat["step"]
        launched.up("--resume")
        launched.until(lambda: launched.agent_events("resumed"))
        (damaged,) = launched.agent_events("rows_damaged")
        (resumed,) = launched.agent_events("resumed")
        assert 0 < resumed["steps"] < damaged["rows"][1] <= 4096 // 240 < before
        launched.until_stepping()
        launched.stop()
    finally:
        launched.end()
