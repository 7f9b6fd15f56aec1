"""A night in minutes: one headless training under the launcher, a fault every minute or two, to its last step.

Run: ``python benchmarks/night.py --json benchmarks/results/night.json``. Simulator, collector, learner and the launcher
itself are killed or hung at seeded times; a simulator leaks, one dies as on a full GPU, and a foreign process takes the
RAM. A killed launcher is restarted, as a user would do. For each fault it records the launcher's diagnosis, and how
long no step was finished. Exit 1 if a finished step was lost or the run didn't finish.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import subprocess
import sys
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml
from fault_injection import FAULTS, NotRunningError, Scene, instants
from measuring import end_in_order, machine, spread
from progress import Peaks, Rows

from carla_launcher.places import SHIPPED
from carla_launcher.ports import free_ports
from carla_run.heartbeat import read_heartbeat
from carla_run.paths import RunPaths
from carla_run.readers import inner, read_lines, read_object

REPOSITORY = Path(__file__).resolve().parents[1]
ROOM_MIB = 5_000
"""Free room in the RAM pool above its reserve when the night begins; a foreign process must take more to matter."""
FELT_MIB = 400
"""MiB that the foreign process takes beyond that."""
SETTINGS: dict[str, Any] = {
    "environment": {"route": {"min_length_m": 60, "max_length_m": 200}},
    "td3": {"batch_size": 32},
    "training": {
        "warmup_steps": 500,
        "updates_per_step": 0.03,
        "learner_threads": 1,
        "log_every_steps": 1_000,
        "checkpoint_every_steps": 2_000,
    },
    "evaluation": {"every_steps": 50_000, "episodes": 2, "final_episodes": 2, "baselines": False, "video": False},
}
LIMITS: dict[str, Any] = {
    # A night of weeks in minutes: a minute of health, or of fitting memory, is enough.
    "simulator": {"restarts": {"stable_after_s": 45}},
    "agent": {"beat_limit_s": 30, "restarts": {"stable_after_s": 45}},
    "memory": {"slope_window_s": 60},
    "restore": {"settle_s": 10, "hold_s": 60},
}
NAMING = ("finding", "waiting", "simulator_restart", "agent_restart", "rung_taken", "rung_left", "run_started")
AGENT_NAMING = ("collector_restarted", "resumed", "drained", "drain_ended")
ROLES = ("launcher", "simulator", "learner", "collector")


@dataclass
class Injected:
    """One injected fault and its consequences."""

    kind: str
    time: float
    did: str
    steps: int
    phase: str
    launcher_state: str
    named: list[dict[str, Any]] = field(default_factory=list)
    """The launcher's journal from the fault to the next: seconds after the fault, event, diagnosis, cause."""
    agent_named: list[dict[str, Any]] = field(default_factory=list)
    pause_s: float = 0.0
    """The longest time without a finished step from the fault to the next."""
    again_s: float | None = None
    """From the fault to that pause's end; None if there was none of a second."""


class Night:
    """One run and its launchers."""

    def __init__(self, runs: Path, steps: int) -> None:
        runs.mkdir(parents=True, exist_ok=True)
        self.run = RunPaths(runs / "night")
        self.rows = Rows(self.run.replay)
        self.peaks = {role: Peaks() for role in ROLES}
        self.injected: list[Injected] = []
        self.launchers = 0
        self._steps = steps
        self._reserve_mib = _available_mib() - ROOM_MIB
        port = free_ports(random.Random(), 2)
        self.scene = Scene(self.run, port or 29_990, lambda: self._launcher.pid, self._foreign_mib)
        self._command = [
            sys.executable,
            "scripts/launch.py",
            "up",
            "--runs-dir",
            str(runs),
            "--run-name",
            self.run.path.name,
        ]
        self._asked = self._configured(runs)
        self._output = (runs / "launcher.log").open("a", encoding="utf-8")
        self._launcher = self._up()
        self.rows.watch()

    def live(self, seed: int, shortest_s: float, longest_s: float) -> int:
        """Inject faults until the run is over; return the launcher's exit code."""
        for wait_s, kind in instants(seed, shortest_s, longest_s):
            if (code := self._wait(wait_s)) is not None:
                return code
            while not self._inject(kind):
                if (code := self._wait(0.2)) is not None:
                    return code
        raise AssertionError("instants end")

    def close(self) -> None:
        """Stop observing; a remaining launcher ends with its run."""
        self.rows.end()
        if self._launcher.poll() is None:
            self._launcher.terminate()
        self._output.close()

    def tell(self) -> None:
        """Record the consequences of each fault."""
        launcher, agent = read_lines(self.run.launcher_events), read_lines(self.run.agent_events)
        ends = [*(injected.time for injected in self.injected[1:]), time.time()]
        for injected, end in zip(self.injected, ends, strict=False):
            injected.named = [_told(row, injected.time) for row in _within(launcher, injected.time, end, NAMING)]
            injected.agent_named = [
                _told(row, injected.time) for row in _within(agent, injected.time, end, AGENT_NAMING)
            ]
            pause = self.rows.pause_after(injected.time, end)
            if pause is not None:
                injected.pause_s, injected.again_s = round(pause[1] - pause[0], 2), round(pause[1] - injected.time, 2)

    def _inject(self, kind: str) -> bool:
        """Inject a fault; return whether the victim existed."""
        beat = read_heartbeat(self.run.heartbeat)
        phase = beat.phase.value if beat else "none"
        state = str(read_object(self.run.launcher_state).get("state"))
        self.rows.seal()
        injected = Injected(kind, time.time(), "", self.rows.steps(), phase, state)
        try:
            injected.did = FAULTS[kind](self.scene)
        except (NotRunningError, ProcessLookupError):
            return False
        self.injected.append(injected)
        print(time.strftime("%H:%M:%S"), injected.steps, kind, injected.did, phase, state, flush=True)
        if kind == "launcher killed":
            self._launcher.wait()
            self._launcher = self._up()
        return True

    def _wait(self, seconds: float) -> int | None:
        """Measure all programs' memory meanwhile; return the exit code of a launcher that ended."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            if (code := self._launcher.poll()) is not None:
                return code
            for role in ROLES:
                try:
                    self.peaks[role].see(self.scene.pid(role))
                except NotRunningError:
                    continue
            time.sleep(min(left, 1.0))
        return self._launcher.poll()

    def _up(self) -> subprocess.Popen[bytes]:
        self.launchers += 1
        environment = {**os.environ, "LITE_CONTROL_PORT": str(self.scene.control_port)}
        reported = self._asked if self.launchers == 1 else []  # later launchers get only the run's name
        return subprocess.Popen(
            [*self._command, *reported], cwd=REPOSITORY, env=environment, stdout=self._output, stderr=subprocess.STDOUT
        )

    def _configured(self, runs: Path) -> list[str]:
        agent = {**SETTINGS, "replay": {"capacity": round(1.2 * self._steps)}}
        agent["training"] = {**SETTINGS["training"], "total_steps": self._steps}
        limits = yaml.safe_load(SHIPPED.read_text(encoding="utf-8"))
        memory = {"reserve_mib": {**limits["memory"]["reserve_mib"], "ram": self._reserve_mib}}
        _merge(limits, {**LIMITS, "memory": {**LIMITS["memory"], **memory}})
        (runs / "agent.yaml").write_text(yaml.safe_dump(agent), encoding="utf-8")
        (runs / "launcher.yaml").write_text(yaml.safe_dump(limits), encoding="utf-8")
        files = ["--config", str(runs / "agent.yaml"), "--launcher-config", str(runs / "launcher.yaml")]
        return ["--runtime", "process", "--simulator", "carla-lite", *files]

    def _foreign_mib(self) -> int:
        return max(FELT_MIB, _available_mib() - self._reserve_mib + FELT_MIB)


def main(
    runs: Annotated[Path, typer.Option(help="Folder for the run; it must be new or empty.")] = Path("runs/night"),
    steps: Annotated[int, typer.Option(min=1_000, help="Number of environment steps.")] = 200_000,
    seed: Annotated[int, typer.Option(help="Seed of the faults and their times.")] = 0,
    shortest_s: Annotated[float, typer.Option(help="Shortest time between two faults, in seconds.")] = 60.0,
    longest_s: Annotated[float, typer.Option(help="Longest time between two faults, in seconds.")] = 120.0,
    as_json: Annotated[Path | None, typer.Option("--json", help="JSON file for the result.")] = None,
) -> None:
    began = time.time()
    end_in_order()
    night = Night(runs, steps)
    try:
        code = night.live(seed, shortest_s, longest_s)
    finally:
        night.close()
    night.tell()
    problems = night.rows.problems()
    if (finished := night.rows.steps()) < steps:
        problems.append(f"{finished} of {steps} steps were finished")
    if code != 0:
        problems.append(f"the launcher ended with {code}")
    result = {
        "what": "one training under the launcher, injected at seeded instants, to its last step",
        "machine": machine("torch", "carla"),
        "command": "python " + " ".join(sys.argv),
        "settings": SETTINGS,
        "limits": LIMITS,
        "wall_s": round(time.time() - began),
        "exit_code": code,
        "steps": finished,
        "rows_lost": night.rows.lost,
        "faults": len(night.injected),
        "launchers": night.launchers,
        **_counts(night.run),
        "peaks": {role: asdict(peaks) for role, peaks in night.peaks.items()},
        "again_s": _by_kind(night.injected),
        "problems": problems,
        "injected": [asdict(injected) for injected in night.injected],
    }
    text = json.dumps(result, indent=1)
    if as_json is not None:
        as_json.write_text(f"{text}\n", encoding="utf-8")
    print(text)
    raise typer.Exit(1 if problems else 0)


def _counts(run: RunPaths) -> dict[str, Any]:
    state = read_object(run.launcher_state)
    return {name: state.get(name) for name in ("simulator_restarts", "agent_restarts")}


def _by_kind(injected: list[Injected]) -> dict[str, dict[str, float]]:
    kinds = itertools.groupby(sorted(injected, key=lambda each: each.kind), key=lambda each: each.kind)
    times = {kind: [each.again_s or 0.0 for each in group] for kind, group in kinds}
    return {kind: spread(values) for kind, values in times.items()}


def _within(rows: list[dict[str, Any]], begin: float, end: float, events: tuple[str, ...]) -> list[dict[str, Any]]:
    return [row for row in rows if begin <= row["time"] < end and row["event"] in events]


def _told(row: dict[str, Any], since: float) -> dict[str, Any]:
    reported = {"after_s": round(row["time"] - since, 2), "event": row["event"]}
    return {**reported, **{name: row[name] for name in ("diagnosis", "cause", "reason", "rung") if row.get(name)}}


def _merge(into: dict[str, Any], values: dict[str, Any]) -> None:
    for key, value in values.items():
        if isinstance(value, dict):
            into[key] = {**inner(into, key)}
            _merge(into[key], value)
        else:
            into[key] = value


def _available_mib() -> int:
    fields = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines())
    return int(fields["MemAvailable"].split()[0]) // 1024


if __name__ == "__main__":
    typer.run(main)
