"""``python -m carla_launcher.plugins.slurm RUN CODE``: what the batch script asks when a step has ended.

Prints what it does next (``again``, ``requeue`` or ``over``) and the job's exit code. Needs none of Slurm's commands: a
container has none.
"""

import os
import sys
import time
from pathlib import Path

from carla_launcher.plugins.slurm import record
from carla_launcher.plugins.slurm.ends import next_of
from carla_run.paths import RunPaths

folder, code = sys.argv[1:]
restart = int(os.environ.get("SLURM_RESTART_COUNT") or 0)
ended = record.ended(RunPaths(Path(folder)), int(code), os.environ["SLURM_JOB_ID"], restart, time.time())
print(f"launcher: {ended[-1].sentence}", file=sys.stderr)
print(*next_of(ended))
