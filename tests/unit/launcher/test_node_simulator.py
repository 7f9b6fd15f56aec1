"""A simulator of a cluster's node that no restart mends."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import yaml

from carla_launcher.places import SHIPPED
from carla_run.readers import read_object
from tests.conftest import REPOSITORY
from tests.crowd import until

DYING = """\
import sys
print("MessageBox: Incompatible Vulkan driver found!: Cannot find a compatible Vulkan driver (ICD).", flush=True)
open(sys.argv[1], "a").write("started\\n")
sys.exit(1)
"""


def test_it_is_started_once_and_its_state_says_what_is_missing(tmp_path: Path) -> None:
    program, starts = tmp_path / "carla.py", tmp_path / "starts"
    program.write_text(DYING, encoding="utf-8")
    settings = yaml.safe_load(SHIPPED.read_text(encoding="utf-8"))
    settings["simulator"]["command"] = f"{sys.executable} {program} {starts} {{port}}"
    settings["simulator"]["restarts"] = {**settings["simulator"]["restarts"], "first_delay_s": 0.01}
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
        until(lambda: "Vulkan" in str(read_object(tmp_path / "simulator.json").get("cause")))
        said, _ = node.communicate(timeout=120)
    assert "no Vulkan driver that it can use" in said
    assert "restarted" not in said
    assert starts.read_text(encoding="utf-8") == "started\n"
    assert json.loads((tmp_path / "simulator.json").read_text(encoding="utf-8"))["state"] == "down"
