"""The report is made of whatever is there, and is whole and safe whatever that is."""

from __future__ import annotations

import json
import math
import re
import xml.etree.ElementTree as ET
from collections.abc import Mapping
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from carla_launcher.show import report
from carla_launcher.show.charts import CURVE_HEIGHT, CURVE_WIDTH, line_chart
from carla_launcher.show.formatting import mib
from carla_run.heartbeat import MemoryFigures
from carla_run.paths import RunPaths
from tests.unit.beats import BEAT
from tests.unit.launcher.journalled import ANYTHING, crash, lines

VOID = {"meta", "br", "img"}
NAMES = (
    "run_started",
    "run_ended",
    "finding",
    "finding_over",
    "simulator_restart",
    "simulator_healthy",
    "agent_restart",
    "agent_starts",
    "agent_adopted",
    "verified",
    "draining",
    "request_answered",
    "rung_taken",
    "rung_left",
    "waiting",
    "stood_still",
)
TOTALS = {"success": 0.5, "blocked": 1.0, "route_completion": 0.75, "driving_score": 61.0, "collisions_per_km": 1.25}
SHORTAGE = ("phase", "batch", "micro_batch", "action", "cause", "snapshot")
PEAKS = {"updating": {"host": 512.4, "learner": 301.5}, "waiting_for_simulator": {"host": 211.0}}


def beat(peaks_mib: Mapping[str, Mapping[str, float]], device: str = "cpu") -> str:
    """Return a heartbeat's text."""
    memory = MemoryFigures(peak_by_phase_mib=peaks_mib)
    return replace(BEAT, step=1500, updates=700, device=device, memory=memory).json()


HELD = {"total": 5745.0, "free": 255.0, "owners": {"simulator": 4800.0, "agent": 605.0, "Xorg": 85.0}}
FILES: dict[str, str] = {
    "launcher.json": json.dumps(
        {"host": "127.0.0.1", "port": 2000, "started": 1e9, "updated": 1e9 + 3661, "exit_code": 0, "reason": "done"}
    ),
    "launcher-events.jsonl": '{"time": 1000000000, "event": "simulator_failed", "cause": "signal 11", "in_a_row": 1}\n',
    "launcher-memory.jsonl": "".join(
        json.dumps({"time": 1e9 + at, "step": 10 * at, "taken": [], "phase": "updating", "pools": {"vram:0": HELD}})
        + "\n"
        for at in range(0, 600, 10)
    ),
    "agent-events.jsonl": '{"time": 1000000060, "event": "checkpoint", "cause": "", "steps": 500}\n'
    '{"time": 1000000001, "event": "footprint", "host_by_phase_mib": {"updating": 498.7, "saving": 530}}\n'
    '{"time": 1000000070, "event": "out_of_memory", "phase": "critic", "action": "halved", "cause": "no room", '
    '"batch": 64, "micro_batch": 64, "snapshot": "out-of-memory-1.json"}\n',
    "agent.json": beat(PEAKS),
    "config.yaml": "# command: train\nseed: 3\nsimulator: {map: Town01}\n",
    "metrics.jsonl": "".join(
        json.dumps({"step": step, "rollout/ep_rew_mean": step / 10, "memory/learner_mib": 300.0}) + "\n"
        for step in range(0, 5000, 500)
    ),
    "evaluation.json": json.dumps(
        [{"name": "td3", "map": "Lite02", "routes": [], "blocked": ["a>b"], "totals": TOTALS}]
    ),
}


class Balance(HTMLParser):
    """Every element that is opened is closed, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:  # noqa: ARG002
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def page(folder: Path, files: dict[str, str] | dict[str, bytes]) -> str:
    for name, content in files.items():
        data = content if isinstance(content, bytes) else content.encode()
        (folder / name).write_bytes(data)
    text = report.write(RunPaths(folder)).read_text(encoding="utf-8")
    balance = Balance()
    balance.feed(text)
    assert not balance.open
    return text


def crashes(count: int, **said: str) -> str:
    """Return a launcher's events: so many crashes, a minute apart, each repaired in a quarter of one."""
    began_s = [1e9 + 30 + 60 * each for each in range(count)]
    rows = [row for at in began_s for row in crash(at, at + 15, f"i{at:.0f}", **said)]
    return lines({"time": 1e9, "event": "run_started", "cause": ""}, *rows)


EMPTY: dict[str, str] = dict.fromkeys(FILES, "")
TWO_CARDS = lines(*({"time": 1e9 + at, "step": at, "pools": {"vram:0": HELD, "vram:1": HELD}} for at in range(9)))
BANDS = {"agent": {"vram:0": {"updating": 700.0, "evaluating": 500.0}}, "simulator": {"vram:0": {"": 4700}, "x": 3}}
ITEMS = [
    {"name": "encoder", "phase": None, "device_mib": 0.0, "host_mib": 12.25, "disk_mib": 0.0},
    {"name": "replay", "phase": "updating", "device_mib": 0.0, "host_mib": 0.0, "disk_mib": 700.0},
]
ESTIMATE = {"items": ITEMS, "total_mib": {"host": 520.0, "disk": 700.0}, "free_mib": {"host": 9e3}}
ON_A_CARD = {"updating": {"host": 900, "device_allocated": 40.2, "device_reserved": 64, "device_used": 5400}}
FOOTPRINT_ON_A_CARD = {"event": "footprint", "device_by_phase_mib": {"updating": 480}}
SHORTAGES = ({"event": "out_of_memory", "phase": f"phase {count}", "action": "collected"} for count in range(25))
LONG = {"event": "footprint", "items": list(range(1000)), "refusal": "word " * 100}
TWO_LAUNCHERS = {
    "launcher.json": json.dumps({"started": 1e9 + 700, "updated": 1e9 + 800, "exit_code": 0, "reason": "done"}),
    "agent-events.jsonl": lines(
        {"time": 1e9 + 100, "event": "collector_restarted"}, {"time": 1e9 + 750, "event": "collector_ready"}
    ),
    "launcher-events.jsonl": crashes(0)
    + lines({"time": 1e9 + 700, "event": "run_started"}, {"time": 1e9 + 800, "event": "run_ended", "cause": "done"}),
}


def item(name: str, phase: str, *cells: str) -> str:
    return f"<tr><th>{name}</th><td>{phase}</td>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>"


def band(owner: str, phase: str, planned: float, held: float | None) -> str:
    return (
        f"<tr><th>{owner}</th><td>VRAM of GPU 0</td><td>{phase}</td><td>{mib(planned)}</td>\n<td>{mib(held)}</td></tr>"
    )


SHOWN: dict[str, tuple[dict[str, str], str]] = {
    "a whole run": (
        {},
        f"""done. The launcher&#39;s exit code is 0.
            <dd>0:09:50</dd>
            <td>75.0%</td>
            on Lite02
            <svg class="plot"
            RAM of the learner, MiB
            simulator failed
            signal 11
            # command: train
            <td>0:01:00</td><td>agent</td><th>checkpoint</th>
            {item("updating", "499", "512", "302")}
            {item("waiting for simulator", "–", "211", "–")}
            Highest RAM held by learner and collector: 512 MiB, in phase updating.
            Memory ran out once
            <td>64 of 64</td><td>micro-batch halved</td>
            <a href="memory/out-of-memory-1.json">
            Not driven, because another car stood at the start: a&gt;b.
            <th>blocked</th>""",
    ),
    "the estimate": (
        {"agent-events.jsonl": lines({"event": "footprint", **ESTIMATE})},
        f"""{item("encoder", "", "12.2", "–")}
            {item("replay", "updating", "–", "700.0")}
            {item("total at the peak", "", "520.0", "700.0")}
            {item("free at the start", "", "9000.0", "–")}""",
    ),
    "two cards": (
        {"launcher-memory.jsonl": TWO_CARDS},
        """<figcaption>VRAM of GPU 0, MiB</figcaption>
            <figcaption>VRAM of GPU 1, MiB</figcaption>""",
    ),
    "planned bands": (
        {"launcher.json": json.dumps({**json.loads(FILES["launcher.json"]), "planned_bands_mib": BANDS})},
        f"""{band("agent", "updating", 700, 605)}
            {band("agent", "evaluating", 500, None)}
            {band("simulator", "all", 4700, 4800)}""",
    ),
    "a card's memory": (
        {"agent.json": beat(ON_A_CARD), "agent-events.jsonl": lines(FOOTPRINT_ON_A_CARD)},
        """<th>RAM held</th><th>GPU estimated</th><th>tensors</th><th>allocator</th><th>GPU in all</th>
            <td>900</td><td>480</td><td>40</td><td>64</td><td>5400</td>""",
    ),
    "many shortages": (
        {"agent-events.jsonl": lines(*SHORTAGES)},
        """Memory ran out 25 times; the last 20 of them
            <th>phase 5</th>""",
    ),
    "a long list": ({"agent-events.jsonl": lines(LONG)}, "word " * 98 + "word"),
    "incidents": (
        {"launcher-events.jsonl": crashes(3)},
        """Ran for 0:09:50, to step 5\u202f900
            3 faults: simulator crashed 3
            restarts: simulator 3.
            Training stood still 3 times,
            <h2>Memory over the run</h2>
            limit 5\u202f745 MiB
            <figcaption>VRAM of GPU 0, MiB</figcaption>
            <h2>Incidents</h2>
            <b>simulator crashed</b>""",
    ),
    "no incident": ({"launcher-events.jsonl": crashes(0)}, "No incidents."),
    "two launchers": (  # 9 min 50 s to the first one's last line, and 100 s
        TWO_LAUNCHERS,
        """<dt>duration</dt><dd>0:11:30</dd>
            <dt>collector restarts</dt><dd>1</dd>""",
    ),
    "nothing": (EMPTY, "<title>"),
}
ABSENT = {
    "many shortages": "<th>phase 4</th>",
    "a long list": "55, ",
    "no incident": "Incidents</h2>",
    "nothing": "<h2>",
}


@pytest.mark.parametrize("case", SHOWN)
def test_the_page_shows_what_the_files_say(tmp_path: Path, case: str) -> None:
    changed, shown = SHOWN[case]
    text = page(tmp_path, {**FILES, **changed})
    assert [line.strip() for line in shown.split("\n            ") if line.strip() not in text] == []
    assert ABSENT.get(case, "http") not in text


def test_the_text_has_the_same_drivers_and_incidents(tmp_path: Path) -> None:
    page(tmp_path, {**FILES, "launcher-events.jsonl": crashes(0)})
    markdown = (tmp_path / "report.md").read_text(encoding="utf-8")
    assert "Not driven, because another car stood at the start: a\\>b." in markdown
    assert "| td3 | 50% | 75.0% | 61.0 | 1.25 | 1 |" in markdown
    assert "No incidents." in markdown
    assert "## Incidents" not in markdown


def test_pictures_are_in_the_page_while_there_is_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "EMBEDDED_BYTES", 100)
    (tmp_path / "videos").mkdir()
    sizes = {"evaluation.png": 60, "td3.mp4": 50, "pid.mp4": 40, "empty.mp4": 0}
    for name, size in sizes.items():
        (tmp_path / "videos" / name).write_bytes(b"x" * size)
    text = page(tmp_path, FILES)
    sources = re.findall(r' src="([^"]*)"', text)
    assert [source[:20] for source in sources] == [
        "data:image/png;base6",
        "videos/td3.mp4",  # 60 and 50 are more than there is room for
        "data:video/mp4;base6",
        "videos/empty.mp4",
    ]
    assert [name for name in sizes if f'<a href="videos/{name}">' not in text] == []


def test_what_is_in_the_files_is_text_and_never_markup(tmp_path: Path) -> None:
    evil = "<script>alert(1)</script>"
    owner = {"total": 100, "free": 10, "owners": {evil: 80, "agent": 10}}
    event = "\n".join(
        json.dumps(
            {
                "time": 1,
                "event": name,
                "cause": evil,
                "diagnosis": evil,
                "pool": evil,
                "rung": evil,
                "incident": "i1",
                evil: evil,
            }
        )
        for name in (evil, "finding", "rung_taken", "simulator_restart", "simulator_healthy")
    )
    files = {
        "launcher-memory.jsonl": "".join(
            json.dumps({"time": at, "taken": [evil], "pools": {evil: owner, "vram:0": owner}}) + "\n" for at in (1, 2)
        ),
        "launcher.json": json.dumps({"exit_code": evil, "reason": evil, "options": {"map": evil}}),
        "launcher-events.jsonl": event,
        "config.yaml": evil,
        "evaluation.json": json.dumps([{"name": evil, "map": evil, "totals": TOTALS}]),
        "agent.json": beat({evil: {"host": 1}}, device=evil),
        "agent-events.jsonl": json.dumps({"event": "out_of_memory", **dict.fromkeys(SHORTAGE, evil)}),
    }
    text = page(tmp_path, files)
    assert "<script" not in text
    assert text.count("&lt;script") > 8


@settings(max_examples=25)
@given(st.data())
def test_torn_files_never_stop_the_report(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    torn: dict[str, bytes] = {}
    for name, content in FILES.items():
        whole = content.encode()
        cut = data.draw(st.integers(0, len(whole)), label=name)
        torn[name] = whole[:cut] + data.draw(st.binary(max_size=8), label=f"then in {name}")
    page(tmp_path_factory.mktemp("run"), torn)


@settings(max_examples=25)
@given(st.data())
def test_values_of_any_kind_never_stop_the_report(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    def anything(keys: tuple[str, ...]) -> dict[str, Any]:
        return data.draw(st.fixed_dictionaries({}, optional=dict.fromkeys(keys, ANYTHING)))

    def launcher_event() -> dict[str, Any]:
        said = ("time", "cause", "diagnosis", "pool", "owner", "numbers", "kind", "ok", "rung", "exit_code", "incident")
        keys = (*said, "from_s", "until_s", "incidents", "steps_lost", "updates_repeated", "goes_on")
        return {"event": data.draw(st.sampled_from(NAMES)), "time": data.draw(st.integers(0, 99)), **anything(keys)}

    def memory_row() -> dict[str, Any]:
        held = {"vram:0": anything(("total", "free", "owners")), "ram": {**HELD, "owners": data.draw(ANYTHING)}}
        return {"time": data.draw(st.integers(0, 99)), "pools": held, **anything(("time", "step", "phase", "taken"))}

    events = [anything(("time", "event", "cause", "x")) for _ in range(2)]
    events += [launcher_event() for _ in range(data.draw(st.integers(0, 6)))]
    metrics = [anything(("step", "rollout/ep_rew_mean", "memory/x")) for _ in range(3)]
    files = {
        "launcher.json": json.dumps(
            anything(
                ("started", "updated", "exit_code", "reason", "options", "host", "planned_bands_mib", "standstill")
            )
        ),
        "launcher-events.jsonl": "\n".join(map(json.dumps, events)),
        "launcher-memory.jsonl": "\n".join(json.dumps(memory_row()) for _ in range(3)),
        "agent-events.jsonl": json.dumps(anything(("time", "event", "steps", "updates"))),
        "metrics.jsonl": "\n".join(map(json.dumps, metrics)),
        "agent.json": json.dumps({**BEAT.data(), data.draw(st.sampled_from(sorted(BEAT.data()))): data.draw(ANYTHING)}),
        "evaluation.json": json.dumps([{"name": data.draw(ANYTHING), "totals": anything(tuple(report.COLUMNS))}]),
        "config.yaml": json.dumps({"seed": data.draw(ANYTHING), "simulator": data.draw(ANYTHING)}),
    }
    page(tmp_path_factory.mktemp("run"), files)


@settings(max_examples=50)
@given(st.lists(st.tuples(st.floats(), st.floats()), max_size=40))
@example([(400.0, 1.0), (400.0, 2.0)])
def test_a_curve_stays_inside_its_frame(points: list[tuple[float, float]]) -> None:
    svg = line_chart("a curve", points)
    usable = [(x, y) for x, y in points if math.isfinite(x) and math.isfinite(y) and max(abs(x), abs(y)) < 1e100]
    assert bool(svg) == (len({x for x, _ in usable}) >= 2)
    if svg:
        (curve,) = [path for path in ET.fromstring(svg).findall("path") if path.get("stroke") == "var(--accent)"][:1]
        for x, y in re.findall(r"[ML](-?[\d.]+) (-?[\d.]+)", curve.attrib["d"]):
            assert 0 <= float(x) <= CURVE_WIDTH
            assert 0 <= float(y) <= CURVE_HEIGHT


def test_a_long_curve_is_thinned() -> None:
    svg = line_chart("a curve", [(float(x), math.sin(x / 1000)) for x in range(100_000)])
    assert len(svg) < 20_000


def test_markdown_tables_stay_tables_whatever_a_cause_says(tmp_path: Path) -> None:
    evil = "a | b \\| `c` <br> # d\n| --- |\n*e* [f](g)"
    owners = json.dumps({"time": 1e9, "pools": {"a|b": {"total": 1, "free": 0, "owners": {"x|y": 1}}}}) + "\n"
    page(tmp_path, {**FILES, "launcher-events.jsonl": crashes(2, said=evil), "launcher-memory.jsonl": owners})
    lines = (tmp_path / "report.md").read_text(encoding="utf-8").splitlines()
    tables = [line for line in lines if line.startswith("|")]
    heads = [index for index, line in enumerate(tables) if set(line) <= set("| -")]
    assert len(heads) == 3
    bars = [len(re.findall(r"(?<!\\)(?:\\\\)*\|", line)) for line in tables]
    assert bars[: heads[1] - 1] == [7] * (heads[1] - 1)
    assert bars[heads[1] - 1 :] == [5] * 3 + [7] * 3
    assert len(tables) == 2 + 2 + 2 + 1 + 2 + 1


def test_a_long_run_with_many_faults_makes_a_bearable_page(tmp_path: Path) -> None:
    row = {"step": 1, "taken": [], "pools": dict.fromkeys(("vram:0", "ram", "disk"), HELD)}
    rows = "".join(json.dumps({"time": 1e9 + 6 * at, **row}) + "\n" for at in range(6000))
    text = page(tmp_path, {"launcher-events.jsonl": crashes(600), "launcher-memory.jsonl": rows})
    assert len(text) < 800_000
    assert "600 faults" in text
    assert text.count("<b>simulator crashed</b>") == 200
    assert "The 200 incidents that cost most, of 600 in all." in text
