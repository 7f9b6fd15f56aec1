"""``--on-event``: the command hears what is news, and can't harm the run."""

from __future__ import annotations

import json
import signal
from pathlib import Path

from carla_launcher.act.notify import AT_ONCE, Notifier
from tests.crowd import until


def test_command_gets_the_event(tmp_path: Path) -> None:
    heard = tmp_path / "heard"
    notifier = Notifier(f'cat > {heard}; echo "$LAUNCHER_EVENT $LAUNCHER_INCIDENT: $LAUNCHER_CAUSE" >> {heard}')
    notifier({"event": "rung_taken", "cause": "VRAM is short; $(touch broken)", "rung": "agent_cpu", "incident": "i7"})
    notifier({"event": "request", "kind": "drain"})
    notifier.close()
    event, line = heard.read_text().splitlines()
    assert json.loads(event)["rung"] == "agent_cpu"
    assert line == "rung_taken i7: VRAM is short; $(touch broken)"


def test_command_that_does_not_read_is_awaited(tmp_path: Path) -> None:
    """A pipe would break, or be full and hold the launcher up."""
    heard = tmp_path / "heard"
    notifier = Notifier(f"exec 0<&-; echo closed >> {heard}")
    notifier({"event": "finding", "cause": "again", "much": "x" * 2**20})
    (process,) = notifier._running
    notifier.close()
    assert process.returncode == 0
    assert heard.read_text() == "closed\n"


def test_long_event_arrives_whole(tmp_path: Path) -> None:
    heard = tmp_path / "heard"
    notifier = Notifier(f'cat > {heard}; echo "$LAUNCHER_CAUSE" > {heard}.cause')
    event = {"event": "finding", "cause": "\0\ud800 torn" + "y" * 2**18, "much": "x" * 2**20}
    notifier(event)
    notifier.close()
    assert json.loads(heard.read_text()) == event
    assert Path(f"{heard}.cause").read_text().startswith(" ? tornyyy")


def test_hung_commands_give_their_place_up(tmp_path: Path) -> None:
    count = tmp_path / "count"
    notifier = Notifier(f"echo x >> {count}; exec sleep 3600", hung_s=float("inf"))
    for _ in range(3 * AT_ONCE):
        notifier({"event": "finding", "cause": "again"})
    hung = list(notifier._running)
    assert len(hung) == AT_ONCE
    until(lambda: count.exists() and len(count.read_text().split()) == AT_ONCE)
    notifier._hung_s = 0.0
    notifier({"event": "run_ended", "cause": "finished"})
    assert hung[0].returncode == -signal.SIGKILL
    until(lambda: len(count.read_text().split()) == AT_ONCE + 1)
    for process in notifier._running:
        process.kill()
    notifier.close()


def test_a_command_that_there_isnt_is_no_error() -> None:
    Notifier("no-such-command-at-all")({"event": "finding", "cause": ""})
