#!/usr/bin/env bash
# Starts CARLA: off screen unless a display is given, at the quality of CARLA_QUALITY (Low or Epic), on CARLA_PORT.
# Arguments are passed on to the simulator. Exit: 65 what the environment says can't be, else the simulator's own.
set -euo pipefail

refuse() { printf 'carla: %s\n' "$*" >&2; exit 65; }

quality=${CARLA_QUALITY:-Low}
port=${CARLA_PORT:-2000}
simulator=${CARLA_ROOT:-/workspace}/CarlaUE4.sh

[[ $quality =~ ^(Low|Epic)$ ]] || refuse "CARLA_QUALITY is '$quality', expected Low or Epic (the simulator has no other)."
[[ $port =~ ^[1-9][0-9]{0,4}$ ]] && [ "$port" -le 65533 ] ||
    refuse "CARLA_PORT is '$port', expected a number from 1 to 65533 (the simulator takes the next two as well)."
[ -f "$simulator" ] || refuse "$simulator isn't there; is this built from carlasim/carla 0.9.x?"

screen=(-RenderOffScreen)
[ -z "${DISPLAY:-}" ] || screen=()

# CarlaUE4.sh doesn't exec the simulator. With TERM ignored (which a shell hands on) it stays while the simulator, which
# sets a handler of its own, ends in order; TINI_KILL_PROCESS_GROUP in the Dockerfile lets the signal reach both.
trap '' TERM
exec bash "$simulator" "${screen[@]}" -nosound "-quality-level=$quality" "-carla-rpc-port=$port" "$@"
