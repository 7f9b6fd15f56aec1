"""Machines for the doctor's checks: programs of a test in place of the real ones, and a driver's library in C."""

from __future__ import annotations

import json
import platform
from dataclasses import replace
from pathlib import Path
from typing import Any

from carla_launcher.show.checks.machine import Finding, Machine, Verdict
from tests.c_library import compiled

REPOSITORY = Path(__file__).resolve().parents[3]
DRIVER = """
#include <string.h>
int nvmlInit_v2(void) { return CODE; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = 2; return 0; }
int nvmlSystemGetDriverVersion(char *text, unsigned size) { strncpy(text, "570.1", size); return 0; }
"""


def with_programs(machine: Machine, **programs: str) -> Machine:
    """Return the machine with only these programs on its PATH."""
    folder = machine.stack / "bin"
    folder.mkdir(exist_ok=True)
    for name, text in programs.items():
        path = folder / name.replace("_", "-")
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
    return changed(machine, PATH=str(folder))


def changed(machine: Machine, **environment: str) -> Machine:
    return replace(machine, environment={**machine.environment, **environment})


def expect(found: Finding, verdict: Verdict, said: str = "", do: str = "") -> None:
    """Fail unless a check found this, and says what to do with these words."""
    assert found.verdict is verdict, found
    assert said in found.found
    assert do in found.do


def driver_library(folder: Path, code: int) -> str:
    compiled(DRIVER.replace("CODE", str(code)), folder / "libnvidia-ml.so.1")
    return str(folder)


HERE = platform.release()
RUNC = {"runc": {"path": "runc"}}


def answering(machine: Machine, more: str = "exit 0", server: dict[str, Any] | None = None, **info: Any) -> Machine:
    """Return the machine with a docker whose engine says this of itself; ``more`` is what other commands do."""
    known = {"ServerVersion": "28.1.1", "KernelVersion": HERE, "Runtimes": RUNC, **info}
    cases = f"info) echo '{json.dumps(known)}';; version) echo '{json.dumps(server or {})}';; *) {more};;"
    return with_programs(machine, docker=f'case "$1" in {cases} esac')
