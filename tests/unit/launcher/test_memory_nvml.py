"""The GPU's memory as the real nvidia-ml-py tells it, over a driver that is a stand-in in C."""

from __future__ import annotations

import ctypes.util
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carla_run.memory.nvml import merged
from tests.conftest import REPOSITORY
from tests.gpu_stub import look
from tests.gpu_stub.stub import Figures, build
from tests.memory_hog import Hog

CARLA, XORG, AGENT, FOREIGN = 4_200_001, 4_200_002, 4_200_003, 4_200_004  # above what Linux gives out
TIMEOUT, NOT_FOUND, LOST, RESET_REQUIRED, MISMATCH, UNKNOWN = 10, 6, 15, 16, 18, 999

ROWS = st.lists(st.tuples(st.integers(1, 9), st.none() | st.floats(0, 1e5)), max_size=9)


class Looker:
    """A program that surveys memory whenever it is asked."""

    def __init__(self, folder: Path, environment: Mapping[str, str], cards: tuple[int, int] = (0, 0)) -> None:
        self._process = subprocess.Popen(
            [sys.executable, look.__file__, str(folder), *map(str, cards)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=REPOSITORY,
            env=environment,
        )

    def read(self, simulator: tuple[int, ...] = (CARLA,), agent: tuple[int, ...] = (AGENT,)) -> dict[str, Any]:
        """Return its reading now; fail with its traceback if it has one."""
        assert self._process.stdin
        assert self._process.stdout
        assert self._process.stderr
        self._process.stdin.write(json.dumps({"simulator": simulator, "agent": agent}) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, self._process.stderr.read()
        return dict(json.loads(line))

    def vram(self, **pids: tuple[int, ...]) -> dict[str, Any]:
        """Return the GPU's pool now."""
        reading = self.read(**pids)
        assert reading["gpu"] == "ok", reading
        return next(pool for pool in reading["pools"] if pool["name"] == "vram:0")

    def owners(self) -> dict[str, tuple[float | None, str]]:
        """Return what each owner in the GPU's pool holds, and how that is known."""
        return {
            f"{owner['kind']}:{owner['name']}": (owner["held"]["mib"], owner["held"]["provenance"])
            for owner in self.vram()["owners"]
        }

    def end(self) -> None:
        """End it."""
        self._process.kill()
        self._process.communicate()


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("libraries"))


@pytest.fixture
def figures(tmp_path: Path, libraries: Path) -> Figures:
    return Figures(tmp_path / "figures", libraries)


@pytest.fixture
def looker(tmp_path: Path, figures: Figures) -> Iterator[Looker]:
    started = Looker(tmp_path, figures.environment)
    yield started
    started.end()


def test_who_draws_and_who_computes_are_owners_and_who_does_both_counts_once(figures: Figures, looker: Looker) -> None:
    figures.hold(CARLA, 4700, "G", "/home/carla/CarlaUE4-Linux-Shipping")
    figures.hold(CARLA, 300, "C")
    figures.hold(XORG, 85, "G", "/usr/lib/xorg/Xorg")
    figures.hold(AGENT, 400, "C")
    pool = looker.vram()
    assert (pool["total"]["mib"], pool["free"]["mib"]) == (5745, 5745 - 4700 - 85 - 400)
    assert [owner["kind"] for owner in pool["owners"]] == ["simulator", "agent", "foreign"]
    assert looker.owners() == {
        "simulator:simulator": (4700, "measured"),
        "agent:agent": (400, "measured"),
        "foreign:Xorg": (85, "measured"),
    }


@given(ROWS, ROWS)
def test_a_process_in_any_list_counts_once_with_its_largest_figure(
    graphics: list[tuple[int, float | None]], compute: list[tuple[int, float | None]]
) -> None:
    held = merged(graphics, compute)
    rows = graphics + compute
    assert held == merged(compute, graphics)
    assert set(held) == {pid for pid, _ in rows}
    for pid, mib in held.items():
        reported = [each for other, each in rows if other == pid and each is not None]
        assert mib == max(reported, default=None)


def test_what_the_driver_keeps_for_itself_is_not_there_to_be_had(figures: Figures, looker: Looker) -> None:
    figures.total_mib, figures.reserved_mib = 6144, 399
    figures.hold(XORG, 85, "G")
    pool = looker.vram()
    assert (pool["total"]["mib"], pool["free"]["mib"]) == (5745, 5660)


def test_one_owner_of_untold_size_is_estimated_from_what_the_others_leave(figures: Figures, looker: Looker) -> None:
    figures.unlisted_mib = 4800
    figures.hold(CARLA, None, "G")
    figures.hold(AGENT, 400, "C")
    figures.hold(AGENT, None, "G")
    assert looker.owners() == {"simulator:simulator": (4800, "estimated"), "agent:agent": (400, "measured")}


def test_two_owners_of_untold_size_stay_unknown_and_free_memory_is_measured(figures: Figures, looker: Looker) -> None:
    figures.unlisted_mib = 4800
    figures.hold(CARLA, None, "G")
    figures.hold(AGENT, None)
    assert looker.owners() == {"simulator:simulator": (None, "unknown"), "agent:agent": (None, "unknown")}
    free = looker.vram()["free"]
    assert (free["mib"], free["provenance"]) == (945, "measured")


def test_a_driver_that_names_no_process_still_tells_what_is_free(figures: Figures, looker: Looker) -> None:
    figures.unlistable = True
    figures.hold(CARLA, 4700, "G")
    reading = looker.read()
    assert reading["problem"] == "The driver doesn't report which processes hold GPU 0's memory (Not Supported)."
    assert looker.vram()["free"]["mib"] == 1045
    assert looker.owners() == {}


def test_a_foreign_process_is_named_grows_and_goes_while_the_launcher_looks(figures: Figures, looker: Looker) -> None:
    figures.hold(CARLA, 3000, "G")
    assert list(looker.owners()) == ["simulator:simulator"]
    python = Path(sys.executable).name
    with Hog() as foreign_process:
        held = figures.path.with_name("figures.d") / str(foreign_process.pid)
        for mib in (100, 2048):
            held.write_text(str(mib))
            assert looker.owners()[f"foreign:{python}"] == (mib, "measured")
            assert looker.vram()["free"]["mib"] == 5745 - 3000 - mib
        assert looker.vram()["owners"][1]["pids"] == [foreign_process.pid]
    assert list(looker.owners()) == ["simulator:simulator"]


def test_programs_of_one_name_are_one_foreign_process(figures: Figures, looker: Looker) -> None:
    figures.hold(XORG, 100, "G", "/opt/browser/browser")
    figures.hold(FOREIGN, 50, "G", "/opt/browser/browser")
    assert looker.owners() == {"foreign:browser": (150, "measured")}
    assert looker.vram()["owners"][0]["pids"] == [XORG, FOREIGN]


def test_a_foreign_process_that_nobody_can_name_is_its_process_id(figures: Figures, looker: Looker) -> None:
    figures.hold(FOREIGN, 50)
    figures.hold(XORG, 40, "G", "[Not Found]")
    assert set(looker.owners()) == {f"foreign:process {FOREIGN}", f"foreign:process {XORG}"}


def test_a_lost_gpu_is_said_and_one_that_comes_back_is_seen(figures: Figures, looker: Looker) -> None:
    figures.hold(CARLA, 4700, "G")
    looker.vram()
    figures.lose()
    for _ in range(2):
        reading = looker.read()
        assert reading["gpu"] == "lost"
        assert [pool["name"] for pool in reading["pools"]] == ["ram", "disk"]
        assert "GPU 0 can't be read (NVML: GPU is lost); it fell off the bus" in reading["problem"]
    figures.lose(False)
    assert looker.owners()["simulator:simulator"] == (4700, "measured")


@pytest.mark.parametrize(
    ("code", "at_first", "later"),
    [
        (LOST, "lost", "lost"),
        (RESET_REQUIRED, "lost", "lost"),
        (NOT_FOUND, "none", "lost"),
        (TIMEOUT, "unreadable", "ok"),
        (MISMATCH, "unreadable", "ok"),
        (UNKNOWN, "unreadable", "ok"),
    ],
)
def test_an_error_means_another_thing_once_the_gpu_was_there(
    figures: Figures, looker: Looker, code: int, at_first: str, later: str
) -> None:
    for expected in (at_first, later):
        figures.fails = code
        figures.write()
        reading = looker.read()
        assert reading["gpu"] == expected
        assert reading["problem"].startswith("GPU 0 can't be read (NVML: ")
        assert [pool["name"] for pool in reading["pools"]] == ["ram", "disk"]
        figures.fails = 0
        figures.write()
        looker.vram()


@pytest.mark.parametrize("code", [UNKNOWN, LOST, MISMATCH])
def test_a_driver_may_fail_from_any_call_on(figures: Figures, looker: Looker, code: int) -> None:
    """Of each three readings the ones before the n-th call are whole, the ones after it say why they aren't."""
    figures.hold(CARLA, 4700, "G")
    whole = looker.vram()
    points = 0
    for after in range(1, 200):
        figures.fails = figures.fails_to_begin = code
        figures.after = after
        figures.write()
        readings = [looker.read() for _ in range(3)]
        failed = [bool(reading["problem"]) for reading in readings]
        figures.fails = figures.fails_to_begin = 0
        figures.write()
        assert looker.vram() == whole, "the driver works again"
        for reading, fails in zip(readings, failed, strict=True):
            assert reading["gpu"] == ("lost" if fails and code == LOST else "ok")
            assert [pool["kind"] for pool in reading["pools"]] == ["vram"] * (not fails) + ["ram", "disk"]
        if not any(failed):
            break
        assert failed == sorted(failed), "once it fails it goes on to fail"
        points += 1
    assert points >= 3 * 5, "a reading makes five calls at least"


def test_a_driver_that_is_not_loaded_is_no_gpu_with_a_reason(figures: Figures, looker: Looker) -> None:
    figures.path.unlink()
    reading = looker.read()
    assert reading["gpu"] == "none"
    assert "Driver Not Loaded" in reading["problem"]


def test_a_gpu_of_another_index_is_not_there(figures: Figures, tmp_path: Path) -> None:
    looker = Looker(tmp_path, figures.environment, (1, 1))
    reading = looker.read()
    looker.end()
    assert reading["gpu"] == "unreadable", "it was asked for: that it isn't there doesn't say that there is none"
    assert reading["problem"].startswith("GPU 1 can't be read")
    assert reading["problem"].endswith("there is no GPU of this index.")


def test_two_cards_are_two_pools_each_with_who_holds_it(figures: Figures, tmp_path: Path) -> None:
    second = figures.second = Figures(tmp_path / "second", figures.libraries, total_mib=8192, index=1, uuid="GPU-2")
    figures.hold(CARLA, 4700, "G")
    figures.hold(XORG, 85, "G", "/usr/lib/xorg/Xorg")
    second.hold(AGENT, 400, "C")
    second.hold(FOREIGN, 1000, "C", "/usr/bin/blender")
    looker = Looker(tmp_path, figures.environment, (0, 1))
    reading = looker.read()
    found = {
        pool["name"]: (pool["free"]["mib"], [owner["name"] for owner in pool["owners"]])
        for pool in reading["pools"]
        if pool["kind"] == "vram"
    }
    second.lose()
    lost = looker.read()
    looker.end()
    assert found == {
        "vram:0": (5745 - 4785, ["simulator", "Xorg"]),
        "vram:1": (8192 - 1400, ["blender", "agent"]),
    }
    assert (lost["gpu"], lost["pools"][0]["name"]) == ("lost", "vram:0"), "the run's cards are as well as the worst"
    assert lost["problem"].startswith("GPU 1 can't be read")


HOLD = """
import sys
from pathlib import Path
from carla_launcher.observe.memory import MemoryReader
from carla_launcher.observe.pools import Cards
lock = MemoryReader(Path("runs/night"), Cards()).hold(0, Path(sys.argv[1]))
print(lock is not None)
"""


def hold(folder: Path, environment: Mapping[str, str]) -> str:
    """Return what a launcher that holds its GPU says: whether it holds one."""
    program = [sys.executable, "-c", HOLD, str(folder)]
    ended = subprocess.run(program, check=True, capture_output=True, text=True, cwd=REPOSITORY, env=environment)
    return ended.stdout.strip()


def test_the_gpu_is_held_by_its_own_name_whatever_its_index(figures: Figures, tmp_path: Path) -> None:
    figures.uuid = "GPU-4f5d"
    figures.write()
    assert hold(tmp_path, figures.environment) == "True"
    assert "run night" in (tmp_path / "carla-td3-GPU-4f5d.lock").read_text()


def test_a_gpu_that_is_not_there_can_t_be_held(figures: Figures, tmp_path: Path) -> None:
    figures.path.unlink()
    assert hold(tmp_path, figures.environment) == "False"


@pytest.mark.skipif(ctypes.util.find_library("nvidia-ml") is not None, reason="this machine has an NVIDIA driver")
def test_without_a_driver_s_library_there_is_no_gpu_and_nothing_is_wrong(tmp_path: Path) -> None:
    looker = Looker(tmp_path, os.environ)
    reading = looker.read()
    looker.end()
    assert (reading["gpu"], reading["problem"]) == ("none", "")
    assert [pool["name"] for pool in reading["pools"]] == ["ram", "disk"]
