"""A real Slurm of its own on this machine: munge, a controller and several nodes in one folder, all on 127.0.0.1.

Runs as root, as slurmd must to start a job's steps, and touches no other Slurm: its configuration is named to every
command by SLURM_CONF. What it starts ends by its process id.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from carla_run.enums import StrEnum
from carla_run.signals import wait_or_kill
from tests.conftest import ports

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "scontrol", "scancel")
START_S = 60.0
SLURM_CONF = """\
ClusterName=tests
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller_port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
StateSaveLocation={folder}/state
SlurmctldPidFile={folder}/slurmctld.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmdLogFile={folder}/slurmd-%n.log
SlurmdSpoolDir={folder}/spool-%n
SlurmctldParameters=enable_configless
MpiDefault=none
SwitchType=switch/none
ReturnToService=2
SlurmdTimeout=120
MessageTimeout=60
InactiveLimit=0
KillWait=5
MinJobAge=3600
OverTimeLimit=0
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SchedulerType=sched/builtin
SchedulerParameters=sched_min_interval=1000000
JobRequeue=1
{memory}
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/none
{nodes}
"""


class Memory(StrEnum):
    """The mechanism that limits a job's memory."""

    CGROUP = "cgroup"
    """The kernel, which kills a process of it."""
    POLLED = "polled"
    """Slurm, which looks every second, and kills the step."""


ENFORCEMENT = {
    Memory.CGROUP: "ProctrackType=proctrack/cgroup\nTaskPlugin=task/cgroup\n"
    "JobAcctGatherType=jobacct_gather/cgroup\nJobAcctGatherFrequency=1",
    Memory.POLLED: "ProctrackType=proctrack/linuxproc\nTaskPlugin=task/none\n"
    "JobAcctGatherType=jobacct_gather/linux\nJobAcctGatherFrequency=1\nJobAcctGatherParams=OverMemoryKill",
}


CGROUPS = Path("/sys/fs/cgroup")


def missing(memory: Memory = Memory.POLLED) -> str:
    """Return why no Slurm can be had here that keeps memory so; empty if one can."""
    if os.geteuid() != 0:
        return "slurmd starts jobs as root only"
    if memory is Memory.CGROUP and not (CGROUPS / "memory").is_dir():
        return "no control groups of version 1 here"
    lacking = [name for name in PROGRAMS if shutil.which(name) is None]
    return f"no {', '.join(lacking)} here: apt-get install slurm-wlm munge" if lacking else ""


class Cluster:
    """Controller and nodes; ``environment`` makes any of Slurm's commands speak to them."""

    def __init__(self, folder: Path, *, nodes: int, memory: Memory) -> None:
        self.folder, self._memory = folder, memory
        self.nodes = [f"n{number}" for number in range(1, nodes + 1)]
        self.environment = {**os.environ, "SLURM_CONF": str(folder / "slurm.conf")}
        self._daemons: dict[str, subprocess.Popen[bytes]] = {}

    def start(self) -> None:
        """Start all, and return when every node is idle."""
        self._write()
        self._munge()
        self._daemon("slurmctld", "slurmctld", "-D", "-c")
        for node in self.nodes:
            self._daemon(node, "slurmd", "-D", "-N", node)
        self._await(lambda: self.states() == dict.fromkeys(self.nodes, "idle"), "idle nodes")

    def stop(self) -> None:
        """End all jobs, then all daemons."""
        if "slurmctld" in self._daemons:
            self.run("scancel", "--full", "--user=root")
            with contextlib.suppress(TimeoutError):
                self._await(lambda: not self.run("squeue", "-h"), "jobs to end", 20)
        for name in reversed(list(self._daemons)):
            daemon = self._daemons.pop(name)
            daemon.send_signal(signal.SIGTERM)
            wait_or_kill(daemon, 15)
        for folder in sorted(CGROUPS.glob("*/slurm_n*/**/"), reverse=True):
            if folder.relative_to(CGROUPS).parts[1].removeprefix("slurm_") in self.nodes:
                folder.rmdir()

    def run(self, *command: str) -> str:
        """Run one of Slurm's commands, and return what it prints."""
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True, timeout=60, check=False)
        return done.stdout + done.stderr

    def states(self) -> dict[str, str]:
        """Return each node's state."""
        lines = self.run("sinfo", "-h", "-N", "-o", "%N %t").splitlines()
        return {words[0]: words[1] for line in lines if len(words := line.split()) == 2}

    def _write(self) -> None:
        host, cores = socket.gethostname().partition(".")[0], os.cpu_count() or 1
        controller = ports(1 + len(self.nodes))
        lines = [
            f"NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs={cores} RealMemory=6000"
            for port, node in enumerate(self.nodes, controller + 1)
        ]
        lines.append("PartitionName=long Nodes=ALL Default=YES MaxTime=INFINITE State=UP")
        for name in ("state", "munge", *(f"spool-{node}" for node in self.nodes)):
            (self.folder / name).mkdir(mode=0o755)
        self.folder.chmod(0o755)
        (self.folder / "slurm.conf").write_text(
            SLURM_CONF.format(
                host=host,
                controller_port=controller,
                folder=self.folder,
                memory=ENFORCEMENT[self._memory],
                nodes="\n".join(lines),
            )
        )
        (self.folder / "cgroup.conf").write_text(
            "CgroupPlugin=cgroup/v1\nCgroupAutomount=no\nConstrainRAMSpace=yes\nConstrainSwapSpace=no\n"
            "ConstrainCores=no\nConstrainDevices=no\n"
        )

    def _munge(self) -> None:
        folder, key = self.folder / "munge", self.folder / "munge.key"
        key.write_bytes(secrets.token_bytes(128))
        key.chmod(0o400)
        paths = {"key-file": key, "socket": folder / "socket", "pid-file": folder / "pid", "log-file": folder / "log"}
        options = [f"--{name}={path}" for name, path in paths.items()]
        self._daemon("munged", "munged", "--foreground", "--force", *options, f"--seed-file={folder / 'seed'}")
        self._await((folder / "socket").exists, "munge")

    def _daemon(self, name: str, *command: str) -> None:
        with (self.folder / f"{name}.out").open("wb") as output:
            self._daemons[name] = subprocess.Popen(
                command, env=self.environment, stdout=output, stderr=output, start_new_session=True
            )

    def _await(self, holds: Callable[[], object], what: str, limit_s: float = START_S) -> None:
        until_s = time.monotonic() + limit_s
        while not holds():
            dead = [name for name, daemon in self._daemons.items() if daemon.poll() is not None]
            if dead or time.monotonic() > until_s:
                said = [
                    f"{name}: {(self.folder / f'{name}.out').read_text()[-2000:]}" for name in dead or self._daemons
                ]
                raise TimeoutError(f"no {what}: " + "\n".join(said))
            time.sleep(0.2)
