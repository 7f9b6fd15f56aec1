"""Two runs on one page: what differs is told, the rest isn't, and a run that left little harms nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from carla_launcher import cli
from carla_launcher.cli import app
from carla_launcher.show import comparison
from carla_launcher.show.charts import line_chart
from carla_run.paths import RunPaths
from tests.unit.launcher.journalled import lines
from tests.unit.launcher.test_report import FILES, Balance

LATER = lines(*({"step": step, "rollout/ep_rew_mean": 1 + step / 5} for step in range(0, 9000, 500)))


def run(folder: Path, **changed: str) -> RunPaths:
    folder.mkdir()
    for name, text in {**FILES, **changed}.items():
        (folder / name).write_text(text)
    return RunPaths(folder)


def compared(one: RunPaths, other: RunPaths) -> str:
    page = one.path.parent / "page.html"
    comparison.write(page, one, other)
    text = page.read_text(encoding="utf-8")
    balance = Balance()
    balance.feed(text)
    assert not balance.open
    return text


def test_two_runs_stand_side_by_side(tmp_path: Path) -> None:
    evaluation = json.dumps([{"name": "td3", "map": "Lite02", "totals": {"success": 0.9, "route_completion": 0.97}}])
    config = "seed: 4\nsimulator: {map: Town01}\n"
    other = run(tmp_path / "b", **{"evaluation.json": evaluation, "config.yaml": config, "metrics.jsonl": LATER})
    text = compared(run(tmp_path / "a"), other)
    for expected in (
        "<title>a and b</title>",
        "<tr><th></th><th>a</th><th>b</th></tr>",
        "<tr><th>td3 of a</th><td>50%</td>",
        "<tr><th>td3 of b</th><td>90%</td>",
        "at the start: a&gt;b of a.</p>",
        "<tr><th>seed</th><td>3</td><td>4</td></tr>",
        'stroke="var(--accent)"',
        'stroke="var(--foreign-1)"',
    ):
        assert expected in text
    assert "simulator.map" not in text  # the same in both
    assert "different routes" not in text


def test_a_run_that_left_nothing_is_compared_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    text = compared(run(tmp_path / "a"), RunPaths(tmp_path / "empty"))
    assert "The run was trained without the launcher." in text
    assert "<tr><th>td3 of a</th>" in text


@pytest.mark.parametrize(("town", "seed"), [("Town02", 3), ("Lite01", 4)])
def test_other_routes_are_told_run_by_run(tmp_path: Path, town: str, seed: int) -> None:
    def driven(name: str, town: str, seed: int) -> RunPaths:
        row = {"name": "td3", "map": town, "seed": seed, "blocked": ["a>b"], "totals": {"success": 0.9}}
        return run(tmp_path / name, **{"evaluation.json": json.dumps([row])})

    text = compared(driven("a", "Lite01", 3), driven("b", town, seed))
    for expected in (
        "<p>The two runs drove different routes: their maps or seeds differ.</p>",
        "<tr><th>td3 of a, on Lite01 with seed 3</th>",
        f"<tr><th>td3 of b, on {town} with seed {seed}</th>",
        "at the start: a&gt;b of a, a&gt;b of b.</p>",
    ):
        assert expected in text


@pytest.mark.parametrize("damaged", [("a",), ("a", "b")])
def test_files_that_cant_be_read_are_named(tmp_path: Path, damaged: tuple[str, ...]) -> None:
    spoilt = {"config.yaml": "{", "evaluation.json": "[{", "metrics.jsonl": "{\n"}
    text = compared(*(run(tmp_path / name, **(spoilt if name in damaged else {})) for name in ("a", "b")))
    for name in ("a", "b"):
        assert (f"<p>{name} has no configuration that can be read.</p>" in text) == (name in damaged)
        assert (f"<p>{name}: 1 line of metrics.jsonl is damaged" in text) == (name in damaged)
    for name in ("config.yaml", "evaluation.json"):
        assert text.count(f"{name} can&#39;t be read and is left out.") == len(damaged)
    assert "Keys with different values" not in text
    assert "Both configurations are equal" not in text


def test_no_two_pairs_share_a_page() -> None:
    names = ["a", "a-and", "and", "and-b", "b", "a-and-b", "b-1", "a-and-b-1", "and-and"]
    pages = {cli._comparison_name(one, other) for one in names for other in names}
    assert len(pages) == len(names) ** 2
    assert "a-and-b.html" in pages


def test_two_curves_share_their_axes(tmp_path: Path) -> None:
    svg = line_chart("both", [(0, 0.0), (10, 1.0)], [(0, 5.0), (20, 9.0)])
    assert svg.count('stroke="var(--accent)"') == svg.count('stroke="var(--foreign-1)"') == 1
    assert ">20<" in svg
    assert line_chart("one", [(0, 0.0), (10, 1.0)], [(0, 1.0)]).count("foreign-1") == 0


def test_the_command_compares_and_names_a_missing_run(tmp_path: Path) -> None:
    for name in ("a", "b"):
        run(tmp_path / name)
    told = CliRunner().invoke(app, ["report", "--compare", "a", "b", "--runs-dir", str(tmp_path)])
    assert told.exit_code == 0, told.output
    assert (tmp_path / "a-and-b.html").exists()
    assert "a-and-b.html" in told.output
    refused = CliRunner().invoke(app, ["report", "--compare", "a", "none", "--runs-dir", str(tmp_path)])
    assert refused.exit_code == 65
