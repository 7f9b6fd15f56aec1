"""``--on-event``: the command hears what is news, and can't harm the run."""

from __future__ import annotations

import json
from pathlib import Path

from launcher.act.notify import AT_ONCE, Notifier
from tests.crowd import until


def test_the_command_gets_the_event_whole_and_its_name_incident_and_cause(tmp_path: Path) -> None:
    heard = tmp_path / "heard"
    notifier = Notifier(f'cat > {heard}; echo "$LAUNCHER_EVENT $LAUNCHER_INCIDENT: $LAUNCHER_CAUSE" >> {heard}')
    notifier({"event": "rung_taken", "cause": "VRAM is short; $(touch broken)", "rung": "agent_cpu", "incident": "i7"})
    notifier({"event": "request", "kind": "drain"})
    notifier.close()
    event, line = heard.read_text().splitlines()
    assert json.loads(event)["rung"] == "agent_cpu"
    assert line == "rung_taken i7: VRAM is short; $(touch broken)"


def test_a_command_that_hangs_or_is_wrong_holds_nothing_up_and_isnt_started_without_end(tmp_path: Path) -> None:
    count = tmp_path / "count"
    notifier = Notifier(f"echo x >> {count}; exec sleep 3600")
    for _ in range(3 * AT_ONCE):
        notifier({"event": "finding", "cause": "again"})
    assert all(process.poll() is None for process in notifier._running), "none was waited for"
    until(count.exists)
    for process in notifier._running:
        process.kill()
    notifier.close()
    assert len(count.read_text().split()) <= AT_ONCE
    Notifier("no-such-command-at-all")({"event": "finding", "cause": ""})
