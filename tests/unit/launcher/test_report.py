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
from hypothesis import given, settings
from hypothesis import strategies as st

from carla_launcher.show import report
from carla_launcher.show.charts import CURVE_HEIGHT, CURVE_WIDTH, line_chart
from carla_run.heartbeat import MemoryFigures
from carla_run.paths import RunPaths
from tests.unit.beats import BEAT

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


def test_a_whole_run_shows_outcome_table_curve_events_and_memory(tmp_path: Path) -> None:
    (tmp_path / "videos").mkdir()
    (tmp_path / "videos" / "td3.mp4").write_bytes(b"a film")
    text = page(tmp_path, FILES)
    for expected in (
        "done (exit code 0)",
        "<dd>0:09:50</dd>",
        "<td>75.0%</td>",
        "on Lite02",
        'src="data:video/mp4;base64,YSBmaWxt"',
        '<a href="videos/td3.mp4">',
        '<svg class="plot"',
        "RAM of the learner, MiB",
        "simulator failed",
        "signal 11",
        "<td>0:01:00</td><td>agent</td><th>checkpoint</th>",
        "<tr><th>updating</th><td>499</td><td>512</td><td>302</td></tr>",
        "<tr><th>waiting for simulator</th><td>–</td><td>211</td><td>–</td></tr>",
        "Most RAM held by learner and collector: 512 MiB, while updating.",
        "Memory ran out once",
        "<td>64 of 64</td><td>micro-batch halved</td>",
        '<a href="memory/out-of-memory-1.json">',
        "# command: train",
    ):
        assert expected in text
    assert "http://" not in text
    assert "https://" not in text


def test_pictures_are_in_the_page_as_long_as_there_is_room_and_linked_beyond(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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


def test_the_estimate_is_shown_item_by_item(tmp_path: Path) -> None:
    items = [
        {"name": "encoder", "phase": None, "device_mib": 0.0, "host_mib": 12.25, "disk_mib": 0.0},
        {"name": "replay", "phase": "updating", "device_mib": 0.0, "host_mib": 0.0, "disk_mib": 700.0},
    ]
    told = {
        "event": "footprint",
        "items": items,
        "total_mib": {"host": 520.0, "disk": 700.0},
        "free_mib": {"host": 9e3},
    }
    text = page(tmp_path, {"agent-events.jsonl": json.dumps(told)})
    rows = [
        ("encoder", "", "12.2", "–"),
        ("replay", "updating", "–", "700.0"),
        ("in all, at its peak", "", "520.0", "700.0"),
        ("free at the start", "", "9000.0", "–"),
    ]
    for name, phase, *cells in rows:
        assert f"<tr><th>{name}</th><td>{phase}</td>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>" in text


def test_each_card_has_its_own_chart_and_row(tmp_path: Path) -> None:
    rows = [json.dumps({"time": 1e9 + at, "step": at, "pools": {"vram:0": HELD, "vram:1": HELD}}) for at in range(9)]
    text = page(tmp_path, {**FILES, "launcher-memory.jsonl": "\n".join(rows) + "\n"})
    for name in ("VRAM of GPU 0", "VRAM of GPU 1"):
        assert text.count(name) >= 2


def test_routes_that_were_left_out_are_told_in_page_and_text(tmp_path: Path) -> None:
    text = page(tmp_path, FILES)
    assert "Left out, for another car stood at the start: a&gt;b." in text
    assert "<th>blocked</th>" in text
    markdown = (tmp_path / "report.md").read_text(encoding="utf-8")
    assert "Left out, for another car stood at the start: a\\>b." in markdown
    assert "| td3 | 50% | 75.0% | 61.0 | 1.25 | 1 |" in markdown


def test_planned_bands_are_shown_beside_the_most_that_was_held_in_their_phase(tmp_path: Path) -> None:
    bands = {"agent": {"vram:0": {"updating": 700.0, "evaluating": 500.0}}, "simulator": {"vram:0": {"": 4700}, "x": 3}}
    state = {**json.loads(FILES["launcher.json"]), "planned_bands_mib": bands}
    text = page(tmp_path, {**FILES, "launcher.json": json.dumps(state)})
    rows = [
        ("agent", "updating", "700 MiB", "605 MiB"),
        ("agent", "evaluating", "500 MiB", "–"),
        ("simulator", "all", "4\u202f700 MiB", "4\u202f800 MiB"),
    ]
    for owner, phase, planned, held in rows:
        row = f"<tr><th>{owner}</th><td>VRAM of GPU 0</td><td>{phase}</td><td>{planned}</td>\n<td>{held}</td></tr>"
        assert row in text


def test_a_device_s_memory_is_shown_where_there_was_one(tmp_path: Path) -> None:
    figures = {"host": 900, "device_allocated": 40.2, "device_reserved": 64, "device_used": 5400}
    estimate = {"event": "footprint", "device_by_phase_mib": {"updating": 480}, "host_by_phase_mib": {}}
    text = page(tmp_path, {"agent.json": beat({"updating": figures}), "agent-events.jsonl": json.dumps(estimate)})
    assert "<th>RAM held</th><th>GPU estimated</th><th>tensors</th><th>allocator</th><th>GPU in all</th>" in text
    assert "<td>900</td><td>480</td><td>40</td><td>64</td><td>5400</td>" in text


def test_only_the_last_shortages_are_listed_and_all_are_counted(tmp_path: Path) -> None:
    rows = [{"event": "out_of_memory", "phase": f"phase {count}", "action": "collected"} for count in range(25)]
    text = page(tmp_path, {"agent-events.jsonl": "\n".join(json.dumps(row) for row in rows)})
    assert "Memory ran out 25 times; the last 20 of them" in text
    assert "<th>phase 5</th>" in text
    assert "<th>phase 4</th>" not in text


def test_an_empty_folder_makes_a_page_too(tmp_path: Path) -> None:
    assert "<h2>" not in page(tmp_path, {})


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
def test_files_torn_anywhere_or_overwritten_never_stop_the_report(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    torn: dict[str, bytes] = {}
    for name, content in FILES.items():
        whole = content.encode()
        cut = data.draw(st.integers(0, len(whole)), label=name)
        torn[name] = whole[:cut] + data.draw(st.binary(max_size=8), label=f"then in {name}")
    page(tmp_path_factory.mktemp("run"), torn)


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=4,
)


@settings(max_examples=25)
@given(st.data())
def test_values_of_any_kind_never_stop_the_report(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    def anything(keys: tuple[str, ...]) -> dict[str, Any]:
        return data.draw(st.fixed_dictionaries({}, optional=dict.fromkeys(keys, ANYTHING)))

    def launcher_event() -> dict[str, Any]:
        keys = ("time", "cause", "diagnosis", "pool", "owner", "numbers", "kind", "ok", "rung", "exit_code", "incident")
        return {"event": data.draw(st.sampled_from(NAMES)), "time": data.draw(st.integers(0, 99)), **anything(keys)}

    def memory_row() -> dict[str, Any]:
        held = {"vram:0": anything(("total", "free", "owners")), "ram": {**HELD, "owners": data.draw(ANYTHING)}}
        return {"time": data.draw(st.integers(0, 99)), "pools": held, **anything(("time", "step", "phase", "taken"))}

    events = [anything(("time", "event", "cause", "x")) for _ in range(2)]
    events += [launcher_event() for _ in range(data.draw(st.integers(0, 6)))]
    metrics = [anything(("step", "rollout/ep_rew_mean", "memory/x")) for _ in range(3)]
    files = {
        "launcher.json": json.dumps(
            anything(("started", "updated", "exit_code", "reason", "options", "host", "planned_bands_mib"))
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
def test_a_curve_stays_inside_its_frame(points: list[tuple[float, float]]) -> None:
    svg = line_chart("a curve", points)
    usable = [(x, y) for x, y in points if math.isfinite(x) and math.isfinite(y) and max(abs(x), abs(y)) < 1e100]
    assert bool(svg) == (len(usable) >= 2)
    if svg:
        (curve,) = [path for path in ET.fromstring(svg).findall("path") if path.get("stroke") == "var(--accent)"][:1]
        for x, y in re.findall(r"[ML](-?[\d.]+) (-?[\d.]+)", curve.attrib["d"]):
            assert 0 <= float(x) <= CURVE_WIDTH
            assert 0 <= float(y) <= CURVE_HEIGHT


def test_a_long_curve_is_thinned() -> None:
    svg = line_chart("a curve", [(float(x), math.sin(x / 1000)) for x in range(100_000)])
    assert len(svg) < 20_000


def test_a_long_list_in_an_event_is_cut_and_a_sentence_is_not(tmp_path: Path) -> None:
    event = {"event": "footprint", "items": list(range(1000)), "refusal": "word " * 100}
    text = page(tmp_path, {"agent-events.jsonl": json.dumps(event)})
    assert "55, " not in text
    assert "word " * 99 in text


def crashes(count: int, said: str = "the simulator ended by itself (signal 11)") -> str:
    """Return a launcher's events: so many crashes, a minute apart, each repaired in a quarter of one."""
    rows: list[dict[str, Any]] = [{"time": 1e9, "event": "run_started", "cause": ""}]
    for start in range(30, 30 + 60 * count, 60):
        at = 1e9 + start
        repaired = [
            {"time": at, "event": "finding", "cause": said, "diagnosis": "simulator_crash", "owner": "simulator"},
            {"time": at, "event": "simulator_restart", "cause": said, "delay_s": 0.5},
            {"time": at, "event": "finding_over", "cause": "", "diagnosis": "simulator_crash", "owner": "simulator"},
            {"time": at + 15, "event": "simulator_healthy", "cause": "", "took_s": 14.5},
        ]
        rows += [{**row, "incident": f"i{start}"} for row in repaired]
    return "".join(json.dumps(row) + "\n" for row in rows)


def test_a_run_with_incidents_is_summed_up_drawn_and_told_row_by_row(tmp_path: Path) -> None:
    text = page(tmp_path, {**FILES, "launcher-events.jsonl": crashes(3)})
    for expected in (
        "Ran for 0:09:50, to step 5\u202f900",
        "3 faults: simulator crashed 3",
        "restarts: simulator 3.",
        "Training stood still 3 times, ",
        "<h2>Memory over the run</h2>",
        "<figcaption>VRAM of GPU 0, MiB</figcaption>",
        "limit 5\u202f745 MiB",
        "<h2>Incidents</h2>",
        "<b>simulator crashed</b>",
    ):
        assert expected in text
    assert text.count("<b>simulator crashed</b>") == 3
    assert "http" not in text


def test_a_run_without_an_incident_says_so_in_one_line(tmp_path: Path) -> None:
    text = page(tmp_path, {**FILES, "launcher-events.jsonl": crashes(0)})
    assert text.count("No incident: nothing went wrong.") == 1
    assert "<h2>Incidents</h2>" not in text
    markdown = (tmp_path / "report.md").read_text(encoding="utf-8")
    assert "No incident: nothing went wrong." in markdown
    assert "## Incidents" not in markdown


def test_markdown_tables_stay_tables_whatever_a_cause_says(tmp_path: Path) -> None:
    evil = "a | b \\| `c` <br> # d\n| --- |\n*e* [f](g)"
    owners = json.dumps({"time": 1e9, "pools": {"a|b": {"total": 1, "free": 0, "owners": {"x|y": 1}}}}) + "\n"
    page(tmp_path, {**FILES, "launcher-events.jsonl": crashes(2, evil), "launcher-memory.jsonl": owners})
    lines = (tmp_path / "report.md").read_text(encoding="utf-8").splitlines()
    tables = [line for line in lines if line.startswith("|")]
    heads = [index for index, line in enumerate(tables) if set(line) <= set("| -")]
    assert len(heads) == 3
    bars = [len(re.findall(r"(?<!\\)(?:\\\\)*\|", line)) for line in tables]
    assert bars[: heads[1] - 1] == [7] * (heads[1] - 1)
    assert bars[heads[1] - 1 :] == [5] * 3 + [7] * 3
    assert len(tables) == 2 + 2 + 2 + 1 + 2 + 1


def test_a_long_run_with_many_faults_makes_a_page_of_a_bearable_size(tmp_path: Path) -> None:
    row = {"step": 1, "taken": [], "pools": dict.fromkeys(("vram:0", "ram", "disk"), HELD)}
    rows = "".join(json.dumps({"time": 1e9 + 6 * at, **row}) + "\n" for at in range(6000))
    text = page(tmp_path, {"launcher-events.jsonl": crashes(600), "launcher-memory.jsonl": rows})
    assert len(text) < 800_000
    assert "600 faults" in text
    assert text.count("<b>simulator crashed</b>") == 200
    assert "The 200 that cost most, of 600." in text


def test_a_run_of_two_launchers_shows_the_time_and_the_collectors_of_both(tmp_path: Path) -> None:
    again = json.dumps({"time": 1e9 + 700, "event": "run_started"}) + "\n"
    ended = json.dumps({"time": 1e9 + 800, "event": "run_ended", "cause": "done"}) + "\n"
    collectors = (
        '{"time": 1000000100, "event": "collector_restarted"}\n{"time": 1000000750, "event": "collector_ready"}\n'
    )
    state = json.dumps({"started": 1e9 + 700, "updated": 1e9 + 800, "exit_code": 0, "reason": "done"})
    changed = {"launcher.json": state, "agent-events.jsonl": collectors}
    text = page(tmp_path, {**FILES, **changed, "launcher-events.jsonl": crashes(0) + again + ended})
    assert "<dt>duration</dt><dd>0:11:30</dd>" in text  # 9 min 50 s to the first one's last line, and 100 s
    assert "<dt>collector restarts</dt><dd>1</dd>" in text
