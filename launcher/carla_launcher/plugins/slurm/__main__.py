"""``python -m carla_launcher.plugins.slurm RUN CODE``: tells the batch script what to do after a step.

Prints ``again``, ``requeue`` or ``over``, and the job's exit code. Uses no Slurm command, since a container has none.
"""

import os
import sys
import time
from pathlib import Path

from carla_launcher.plugins.slurm import record
from carla_launcher.plugins.slurm.ends import WITHOUT_PROGRESS, is_stuck, next_of
from carla_run.paths import RunPaths

folder, code = sys.argv[1:]
restart = int(os.environ.get("SLURM_RESTART_COUNT") or 0)
ended = record.ended(RunPaths(Path(folder)), int(code), os.environ["SLURM_JOB_ID"], restart, time.time())
print(f"launcher: {ended[-1].sentence}", file=sys.stderr)
if is_stuck(ended):
    print(f"launcher: {WITHOUT_PROGRESS} steps of the job in a row made no progress: the job ends", file=sys.stderr)
print(*next_of(ended))
