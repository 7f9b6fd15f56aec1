#!/usr/bin/env bash
# Asks the simulator for its version, with bash alone: an open port that doesn't answer is no simulator.
# The request is MessagePack-RPC, [0, 1, "version", [[false]]]; the answer begins [1, 1, nil, [true, "… (docs/facts.md, 4).
# Exit: 0 it answers · 1 it doesn't.
set -euo pipefail

port=${CARLA_PORT:-${CARLA_PORTS:-2000}}
port=${port%%-*}
seconds=3
begin=940101c0919201

exec 3<>"/dev/tcp/127.0.0.1/$port"
printf '\x94\x00\x01\xa7version\x91\x91\xc2' >&3
answer=''
while [ "${#answer}" -lt "${#begin}" ]; do
    # A byte at a time, for a NUL can't be kept in a variable: an empty read that succeeds was one.
    IFS= LC_ALL=C read -r -t "$seconds" -d '' -n 1 byte <&3 || exit 1
    answer+=$(LC_ALL=C printf '%02x' "'${byte:-}")
done
[ "$answer" = "$begin" ]
