"""One cause, one name: status, report and page call it the same, and no two causes share a name."""

from __future__ import annotations

import io
import time
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from carla_launcher.act import journal
from carla_launcher.act.launcher_state import LauncherState
from carla_launcher.act.monitor import FAILED, _held
from carla_launcher.decide.detectors.causes import Cause, Finding
from carla_launcher.show import dashboard, report
from carla_launcher.show.formatting import cause as name_of
from carla_run.paths import RunPaths


def test_every_cause_has_one_name(tmp_path: Path) -> None:
    run = RunPaths(tmp_path / "night")
    run.path.mkdir()
    written = journal.Journal(run, LauncherState("night", {}, "127.0.0.1", 2000), time.time)
    found = [Finding(each, f"what happened: {each.value}", incident=f"i{at}") for at, each in enumerate(Cause)]
    written.change(findings=tuple(_held(each, 1.0) for each in found))
    for each in found:
        written.open_finding(replace(each, owner="agent"))
    with journal.lock(run):
        said = io.StringIO()
        shown = Console(file=said, width=300)
        shown.print(dashboard.view(dashboard.status(run, time.time())))
    status = said.getvalue()
    page, text = report.write(run), report.write(run).with_suffix(".md")
    names = {each: name_of(each.value) for each in Cause}
    assert len(set(names.values())) == len(Cause)
    for each in found:
        assert f"! {names[each.cause]} since" in status
        assert f"{each.sentence}" in status
        if each.cause in FAILED:
            assert names[each.cause] in text.read_text().replace("\\", "")
            assert f"<b>{names[each.cause].replace(chr(39), '&#39;')}</b>" in page.read_text()
