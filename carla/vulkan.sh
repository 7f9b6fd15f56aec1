#!/usr/bin/env bash
# Says whether Vulkan can find the GPU's driver in this container, before the simulator ends without a word for want of it.
# Prints the one driver file that the simulator shall read; nothing where Vulkan shall look for drivers by itself. The
# engine's runtime may bring NVIDIA's file beside the image's: with both Vulkan counts the card twice, and an index
# (-graphicsadapter) names another card.
# Exit: 0 · 65 there is no driver; one sentence says why, and what to do.
set -euo pipefail

file=/etc/vulkan/icd.d/nvidia_icd.json
library=libGLX_nvidia.so.0
doctor="\`python scripts/launch.py doctor\` looks further"

refuse() { printf 'carla: Vulkan finds no driver for a GPU in this container: %s.\n' "$*" >&2; exit 65; }

# Named by the caller, or another maker's GPU, for which the image has Mesa's drivers.
[ -z "${VK_DRIVER_FILES:-}${VK_ICD_FILENAMES:-}" ] || exit 0

# What the dynamic linker finds by its own rules; nothing of the library is run.
linked=$(LC_ALL=C LD_TRACE_LOADED_OBJECTS=1 LD_PRELOAD=$library /bin/true 2>&1) || true
if [[ $linked == *"$library => "* ]]; then
    if [[ $linked =~ ([^[:space:]]+)\ =\>\ not\ found ]]; then
        missing=${BASH_REMATCH[1]}
        [[ $missing != libnvidia-* ]] ||
            refuse "the engine brought $library without its $missing; upgrade the NVIDIA Container Toolkit ($doctor)"
        refuse "$library needs $missing, which the image hasn't; build it on one that has it"
    fi
    [ ! -f "$file" ] || echo "$file"
    exit 0
fi

compgen -G '/dev/dri/render*' >/dev/null && exit 0
[ ! -e /dev/dxg ] ||
    refuse "under WSL2 NVIDIA's driver has no Vulkan; run CARLA on Windows, and the agent with --simulator-host"
[ -e /dev/nvidiactl ] ||
    refuse "the engine gave it no GPU; install the NVIDIA Container Toolkit and ask for a GPU, as docker-compose.yml" \
        "does ($doctor)"
[[ ,${NVIDIA_DRIVER_CAPABILITIES:-}, =~ ,(all|graphics), ]] ||
    refuse "NVIDIA_DRIVER_CAPABILITIES is '${NVIDIA_DRIVER_CAPABILITIES:-}', expected all, or graphics among them"
refuse "it has a GPU and no $library; install the graphics part of the host's driver (on Ubuntu libnvidia-gl-NNN, as" \
    "nvidia-smi counts), and set GPU_RUNTIME=nvidia in .env where \`docker info\` lists that runtime ($doctor)"
