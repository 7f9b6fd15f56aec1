#!/usr/bin/env bash
# Waits until memory is free, and starts a command at once. What --help says, and in short:
#
#   bash scripts/wait_and_run.sh --min-free 2048 --sleep 300 --timeout 7200 --fallback-batch 2 -- CMD > train.log 2>&1 &
#
# Needs Python 3.10 or newer (this project's .venv if it is there, else python3) and, with a GPU, its package
# nvidia-ml-py. Exit: the command's own · 2 usage · 65 the memory can't be read · 71 it didn't come free in time ·
# 75 stopped while waiting · 126, 127 the command can't be started.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

python=$root/.venv/bin/python
[ -x "$python" ] || python=$(command -v python3) || {
    echo "wait_and_run: no python3 was found: install Python 3.10 or newer, or run \`make test\` once with PYTHON=…" >&2
    exit 65
}
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))' || {
    echo "wait_and_run: $("$python" --version) is too old: install Python 3.10 or newer, as python3 or in $root/.venv" >&2
    exit 65
}
# Not -m: the caller's folder is the command's own. Not installed: any Python will do.
exec "$python" -c 'import sys; sys.path[:1] = [f"{sys.argv[1]}/launcher", f"{sys.argv.pop(1)}/contract"]
from carla_launcher.plugins.reserve.__main__ import main
sys.exit(main())' "$root" "$@"
