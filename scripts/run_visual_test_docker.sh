#!/usr/bin/env bash
# The visual test in containers: drives routes that were not used in training, and writes video, contact sheet and
# verdict into runs/visual/.
#
#   bash scripts/run_visual_test_docker.sh [--checkpoint runs/td3] [--steps 200] …   as scripts/test_visual_navigation.py
#
# With a display, CARLA shows its window there; without one everything is off screen. Without the NVIDIA Container Toolkit
# carla-lite takes CARLA's place; it has no window. The live page while it drives, from the host:
# `python scripts/launch.py dashboard visual`. Exit: the test's own, 0 only for a healthy drive · 2 usage.
set -euo pipefail
cd "$(dirname "$0")/.."

files=(-f docker-compose.yml)
if docker info --format '{{json .Runtimes}}' | grep -q nvidia; then
    export GPU_RUNTIME=${GPU_RUNTIME:-nvidia}
    toolkit=yes
elif type -P nvidia-container-runtime-hook || type -P nvidia-cdi-hook; then
    toolkit=yes
fi >/dev/null
if [ -z "${toolkit:-}" ]; then
    echo "Docker can't give a container a GPU: carla-lite and the CPU." >&2
    files+=(-f docker-compose.lite.yml)
elif [ -n "${DISPLAY:-}" ] && command -v xauth >/dev/null; then
    # A copy of the display's cookie for any host name (family ffff), since a container has its own name. Every user in
    # the container can read the copy; other users of this machine can't read its folder.
    folder=$(mktemp -d)
    export DISPLAY_COOKIE=$folder/cookie
    xauth nlist "$DISPLAY" | sed 's/^..../ffff/' | xauth -q -f "$DISPLAY_COOKIE" nmerge -
    chmod 644 "$DISPLAY_COOKIE"
    files+=(-f docker-compose.visual.yml)
fi

# Its own project without published ports, so that the simulator of a training keeps running and only these containers are
# removed.
visual=(docker compose -p carla-td3-visual "${files[@]}" -f docker-compose.unpublished.yml)
end() {
    "${visual[@]}" down --timeout 5 >/dev/null 2>&1
    rm -rf "${folder:-}"
}
trap end EXIT
"${visual[@]}" run --rm agent python scripts/test_visual_navigation.py "$@"
