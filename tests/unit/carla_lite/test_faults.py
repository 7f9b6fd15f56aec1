"""Faults as text: what is read, what is refused and how, and that CARLA's signs are in the lines."""

from __future__ import annotations

import time

import pytest

from carla_lite.faults import spec
from carla_lite.faults.carla_log import LINES
from carla_lite.faults.fault import FaultError
from carla_lite.faults.injector import Injector
from carla_lite.faults.kinds import KINDS

# docs/facts.md, section 4.
SIGNS = [
    "VK_ERROR_OUT_OF_DEVICE_MEMORY",
    "VkResult=-2",
    "Out of Device Memory, Requested=",
    "VK_ERROR_DEVICE_LOST",
    "Signal 11 caught",
    "bind: Address already in use",
    "lavapipe is not a conformant",
    "xdg-user-dir: not found",
]


@pytest.mark.parametrize(
    ("text", "faults"),
    [
        ("crash", ["crash:signal=11"]),
        ("crash:signal=SIGABRT", ["crash:signal=6"]),
        ("crash:signal=9,after_s=2.5", ["crash:after_s=2.5,signal=9"]),
        ("exit:code=3", ["exit:code=3"]),
        ("hang:after_ticks=100,for_s=5", ["hang:after_ticks=100,for_s=5.0"]),
        ("drop:for_ticks=5", ["drop:for_ticks=5"]),
        ("grow:mib_per_min=20", ["grow:mib_per_min=20.0"]),
        ("vulkan-oom:after_s=9", ["log:after_s=9.0,lines=vulkan-oom", "exit:after_s=9.0,code=139"]),
    ],
)
def test_a_text_is_read_into_faults_that_read_as_themselves(text: str, faults: list[str]) -> None:
    assert [str(fault) for fault in spec.read(text)] == faults
    assert [str(fault) for text in faults for fault in spec.read(text)] == faults


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("crsh", "fault 'crsh' doesn't exist, expected one of crash, exit, "),
        ("", "fault '' doesn't exist"),
        ("hang:for_s=soon", "fault hang: for_s is 'soon', expected a number of seconds above 0"),
        ("hang:for_s=nan", "for_s is 'nan'"),
        ("hang:for_s=inf", "for_s is 'inf'"),
        ("hang:after_s=-1", "after_s is '-1'"),
        ("hang:for_ticks=5", "fault hang: 'for_ticks=5' is no KEY=VALUE with one of the keys after_s, "),
        ("drop:for_ticks=0", "for_ticks is '0', expected a whole number of ticks from 1"),
        ("crash:signal=STOP", "signal is 'STOP', expected one of SEGV, ABRT, "),
        ("crash:signal=19", "signal is '19'"),
        ("crash:11", "'11' is no KEY=VALUE"),
        ("crash:kind=x", "'kind=x' is no KEY=VALUE"),
        ("exit", "fault 'exit' lacks code, expected exit:code=VALUE"),
        ("exit:code=256", "code is '256', expected a whole number from 0 to 255"),
        ("hold:mib=1.5", "mib is '1.5', expected a whole number of MiB from 1"),
        ("hold:held_mib=5", "'held_mib=5' is no KEY=VALUE"),
        ("log:lines=poem", "lines is 'poem', expected one of noise, "),
        ("hang:after_s=1,after_ticks=1", "has both after_s and after_ticks"),
        ("slow-start:by_s=1,after_s=1", "can only be at the start"),
        ("vulkan-oom:for_s=1", "fault log: 'for_s=1' is no KEY=VALUE"),
    ],
)
def test_what_can_not_be_is_refused_in_one_sentence(text: str, sentence: str) -> None:
    with pytest.raises(FaultError) as refused:
        spec.read(text)
    assert sentence in str(refused.value)
    assert "\n" not in str(refused.value)


def test_the_help_names_every_kind_and_preset() -> None:
    text = spec.help_text()
    for name in (*KINDS, *spec.PRESETS):
        assert name in text


@pytest.mark.parametrize("sign", SIGNS)
def test_every_sign_that_a_watcher_goes_by_can_be_printed(sign: str) -> None:
    assert [name for name, lines in LINES.items() if any(sign in line for line in lines)]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time by which faults begin and end; waiting passes it."""
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    monkeypatch.setattr(time, "sleep", lambda seconds: now.__setitem__(0, now[0] + seconds))
    return now


def asked(text: str) -> Injector:
    injector = Injector([])
    for fault in spec.read(text):
        injector.add(fault)
    return injector


def at_work(injector: Injector) -> str:
    """Return the MiB held and the faults at work, after a turn."""
    injector.turn()
    return injector.status().partition(" waiting=")[0]


def test_a_fault_begins_and_ends_at_its_second(clock: list[float]) -> None:
    injector = asked("hang:after_s=3,for_s=2")
    seen = []
    for now in (1002.9, 1003.0, 1004.9, 1005.0):
        clock[0] = now
        seen.append(at_work(injector).endswith("active=hang:after_s=3.0,for_s=2.0"))
    assert seen == [False, True, True, False]


def test_memory_grows_at_the_rate_that_was_asked_for(clock: list[float]) -> None:
    injector = asked("grow:mib_per_min=120")
    held = []
    for _ in range(4):
        held.append(at_work(injector).split()[1])
        clock[0] += 0.5
    injector.clear()
    assert held == ["held_mib=0", "held_mib=1", "held_mib=2", "held_mib=3"]


@pytest.mark.parametrize("mib", [900_000_000, 10**20])
def test_memory_that_no_system_gives_is_one_sentence(mib: int) -> None:
    with pytest.raises(SystemExit, match=rf"fault hold:mib={mib}: the system refuses {mib} MiB more \(.*ask for fewer"):
        asked(f"hold:mib={mib}").turn()


def test_a_slow_start_waits_before_the_port_opens(clock: list[float]) -> None:
    injector = Injector(spec.read("slow-start:by_s=2"))
    injector.before_listening()
    assert clock == [1002.0]
