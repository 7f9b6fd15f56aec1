"""What to do where a simulator finds no GPU to draw on: words for people, in one place."""

from __future__ import annotations

CURE = (
    "for a container set GPU_RUNTIME=nvidia in .env where Docker has that runtime, and build its image again (`docker "
    "compose build carla`); for an installed CARLA install the driver's graphics part (on Ubuntu libnvidia-gl-NNN), so "
    "that `vulkaninfo --summary` names the card; `python scripts/launch.py doctor` looks into the image"
)
ON_THE_CPU = (
    "the simulator renders on the CPU (lavapipe): Vulkan finds no driver for the GPU, which no memory and no restart "
    f"mends: {CURE}"
)
WITHOUT_A_WORD = f"CARLA ends so where Vulkan finds no driver for the GPU: {CURE}"
"""Of a simulator that ended as it started, with nothing in its log that says why."""
