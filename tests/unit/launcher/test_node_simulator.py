"""A simulator of a cluster's node that no restart mends."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from carla_launcher.places import SHIPPED
from tests.conftest import REPOSITORY

DYING = """\
import sys
print("MessageBox: Incompatible Vulkan driver found!: Cannot find a compatible Vulkan driver (ICD).", flush=True)
open(sys.argv[1], "a").write("started\\n")
sys.exit(1)
"""
ENDING = """\
import sys
open(sys.argv[1], "a").write("started\\n")
sys.exit(65)
"""


@pytest.mark.parametrize(
    ("dying", "times", "sentence"),
    [
        (DYING, 1, "no Vulkan driver that it can use"),
        (ENDING, 3, "it ended (exit code 65); it isn't restarted, since it failed 3 times in a row before it was up"),
    ],
)
def test_it_is_started_no_more_than_may_help_and_its_state_says_what_is_wrong(
    tmp_path: Path, dying: str, times: int, sentence: str
) -> None:
    program, starts = tmp_path / "carla.py", tmp_path / "starts"
    program.write_text(dying, encoding="utf-8")
    settings = yaml.safe_load(SHIPPED.read_text(encoding="utf-8"))
    settings["simulator"]["command"] = f"{sys.executable} {program} {starts} {{port}}"
    settings["simulator"]["restarts"] |= {"first_delay_s": 0.01, "longest_delay_s": 0.01}
    path = tmp_path / "launcher.yaml"
    path.write_text(yaml.safe_dump(settings), encoding="utf-8")
    command = [sys.executable, "-m", "carla_launcher", "simulator", "--folder", str(tmp_path), "--simulator", "carla"]
    with subprocess.Popen(
        [*command, "--launcher-config", str(path)],
        cwd=REPOSITORY,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as node:
        assert node.stdout is not None
        said = next((line for line in itertools.islice(node.stdout, 20) if sentence in line), "")
        node.communicate(timeout=120)
    assert "; it isn't restarted" in said
    assert starts.read_text(encoding="utf-8") == times * "started\n"
    assert json.loads((tmp_path / "simulator.json").read_text(encoding="utf-8"))["cause"] in said
