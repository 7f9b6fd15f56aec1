"""What Docker says where it can't do something, and what that means to a person who may change it. Decides nothing."""

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
        "Docker has no runtime of the name that GPU_RUNTIME gives: leave GPU_RUNTIME empty, or register the runtime "
        "(`sudo nvidia-ctk runtime configure --runtime=docker && sudo systemctl restart docker`)",
    ),
    (
        r"Container Runtime Hook directly",
        "the NVIDIA Container Toolkit is set to work through its runtime only: set GPU_RUNTIME=nvidia in .env",
    ),
    (
        r"\bCDI\b",
        "Docker looks for the GPU by CDI, and its list lacks it: `sudo nvidia-ctk cdi generate "
        "--output=/var/run/cdi/nvidia.yaml`, and see that CARLA_GPU and AGENT_GPU name a card of `nvidia-smi -L`",
    ),
    (
        r"unknown device|device error",
        "there is no such GPU as CARLA_GPU or AGENT_GPU names: see `nvidia-smi -L`",
    ),
    (
        r"nvidia-container-cli|nvidia-container-runtime",
        "the NVIDIA Container Toolkit failed: see that `nvidia-smi` works on this machine, and that the toolkit isn't "
        "older than the driver",
    ),
)
_PATTERNS = tuple((re.compile(pattern, re.IGNORECASE), words) for pattern, words in _MEANINGS)


def explained(text: str) -> str:
    """Return the last line that says something, without its full stop, after what the text means, if that is known."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    last = lines[-1].removesuffix(".") if lines else "without a word"
    meaning = next((words for pattern, words in _PATTERNS if pattern.search(text)), "")
    return f"{meaning}; {DOCTOR} says more ({last})" if meaning else last
