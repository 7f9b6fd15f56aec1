"""Explains Docker's error messages, with advice. Decides nothing."""

from __future__ import annotations

import re

from carla_launcher.observe.container_engine import DOCTOR

_MEANINGS = (
    (
        r"'compose' is not a docker command|unknown command: docker compose",
        "Docker has no Compose plugin: install docker-compose-plugin; docker-compose 1 can't read these files",
    ),
    (
        r"could not select device driver",
        "Docker can't give a container the GPU: install the NVIDIA Container Toolkit and restart Docker",
    ),
    (
        r"unknown (?:or invalid )?runtime",
        "Docker doesn't have the runtime that GPU_RUNTIME names: leave GPU_RUNTIME empty, or register the runtime "
        "(`sudo nvidia-ctk runtime configure --runtime=docker && sudo systemctl restart docker`)",
    ),
    (
        r"Container Runtime Hook directly",
        "the NVIDIA Container Toolkit works through its runtime only: set GPU_RUNTIME=nvidia in .env",
    ),
    (
        r"\bCDI\b",
        "Docker looks for the GPU by CDI and doesn't find it: run `sudo nvidia-ctk cdi generate "
        "--output=/var/run/cdi/nvidia.yaml`, and check that CARLA_GPU and AGENT_GPU name a GPU of `nvidia-smi -L`",
    ),
    (
        r"unknown device|device error",
        "CARLA_GPU or AGENT_GPU names a GPU that doesn't exist: see `nvidia-smi -L`",
    ),
    (
        r"nvidia-container-cli|nvidia-container-runtime",
        "the NVIDIA Container Toolkit failed: check that `nvidia-smi` works on this machine, and that the toolkit "
        "isn't older than the driver",
    ),
)
_PATTERNS = tuple((re.compile(pattern, re.IGNORECASE), words) for pattern, words in _MEANINGS)


def explanation(text: str) -> str:
    """Return a message's meaning, if known, and its last line that isn't empty, without full stop."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    last = lines[-1].removesuffix(".") if lines else "no output"
    meaning = next((words for pattern, words in _PATTERNS if pattern.search(text)), "")
    return f"{meaning}; {DOCTOR} says more ({last})" if meaning else last
