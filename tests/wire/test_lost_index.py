"""A run whose replay nobody can describe any more is refused, and does what the refusal says."""

from __future__ import annotations

from carla_run.exits import Exit
from tests.conftest import StartServer
from tests.crowd import PATIENCE_S
from tests.wire.conftest import NewRun


def test_without_its_index_a_run_goes_on_from_its_checkpoint(start_server: StartServer, forked_run: NewRun) -> None:
    run = forked_run("run", start_server())
    run.train("--max-timesteps", "60")
    replay = run.path / "replay"
    for name in ("replay.json", "replay.copy.json"):
        (replay / name).write_bytes(b"{")
    out, _ = run.start("--resume").communicate(timeout=PATIENCE_S)
    assert run.process is not None
    assert run.process.returncode == Exit.BAD_CONFIG, out
    assert "move it away to continue from the checkpoint with an empty replay" in out.splitlines()[-1]
    assert "Traceback" not in out
    replay.rename(run.path / "broken")
    run.train("--resume", "--max-timesteps", "80")
    (resumed,) = run.events("resumed")
    assert (resumed["steps"], resumed["updates"]) == (0, 40)
    assert (run.steps, run.beat["updates"]) == (80, 60)
