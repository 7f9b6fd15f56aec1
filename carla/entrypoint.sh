#!/usr/bin/env bash
# Starts CARLA: off screen unless a display is given, at the quality of CARLA_QUALITY (Low or Epic), on the first
# port of CARLA_PORTS (as 2000-2002), or on CARLA_PORT.
# Arguments are passed on to the simulator. Exit: 65 what the environment says can't be, or Vulkan has no driver
# (carla-vulkan); else the simulator's own.
set -euo pipefail

refuse() { printf 'carla: %s\n' "$*" >&2; exit 65; }

quality=${CARLA_QUALITY:-Low}
ports=${CARLA_PORTS:-2000-2002}
port=${CARLA_PORT:-${ports%%-*}}
named=CARLA_PORTS
[ -z "${CARLA_PORT:-}" ] || named=CARLA_PORT
simulator=${CARLA_ROOT:-/workspace}/CarlaUE4.sh

[[ $quality =~ ^(Low|Epic)$ ]] || refuse "CARLA_QUALITY is '$quality', expected Low or Epic (the simulator has no other)."
[[ $port =~ ^[1-9][0-9]{0,4}$ ]] && [ "$port" -le 65533 ] ||
    refuse "$named is '${CARLA_PORT:-$ports}', expected a number from 1 to 65533 (the simulator takes the next two as well)."
[ "$named" = CARLA_PORT ] || [ "$ports" = "$port-$((port + 2))" ] ||
    refuse "CARLA_PORTS is '$ports', expected three in a row, as $port-$((port + 2))."
[ -f "$simulator" ] || refuse "$simulator isn't there; is this built from carlasim/carla 0.9.x?"

# Unreal draws, unless it is told not to.
if [[ " ${*,,} " != *" -nullrhi "* ]]; then
    driver=$(carla-vulkan)
    # Two names of one thing: loaders before 1.3.207, as Ubuntu 20.04's, read the second.
    [ -z "$driver" ] || export VK_DRIVER_FILES=$driver VK_ICD_FILENAMES=$driver
fi

screen=(-RenderOffScreen)
[ -z "${DISPLAY:-}" ] || screen=()

# CarlaUE4.sh doesn't exec the simulator. With TERM ignored (which a shell hands on) it stays while the simulator, which
# sets a handler of its own, ends in order; TINI_KILL_PROCESS_GROUP in the Dockerfile lets the signal reach both.
trap '' TERM
exec bash "$simulator" "${screen[@]}" -nosound "-quality-level=$quality" "-carla-rpc-port=$port" "$@"
