"""Advice for a simulator that finds no GPU to render on."""

from __future__ import annotations

CURE = (
    "for a container set GPU_RUNTIME=nvidia in .env if Docker has that runtime, and build its image again (`docker "
    "compose build carla`); for an installed CARLA install the driver's graphics libraries (on Ubuntu "
    "libnvidia-gl-NNN), so that `vulkaninfo --summary` lists the GPU; `python scripts/launch.py doctor` checks the "
    "image"
)
ON_THE_CPU = (
    "the simulator renders on the CPU (lavapipe): Vulkan finds no driver for the GPU, and neither memory nor a "
    f"restart helps: {CURE}"
)
NO_REASON = f"CARLA ends like this if Vulkan finds no driver for the GPU: {CURE}"
"""Advice for a simulator that ended during its start, and whose log gives no reason."""
