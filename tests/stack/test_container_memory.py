"""The launcher's readings of a real container's memory, up to a real kill by the kernel."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from carla_launcher.observe.memory import MemoryReader
from carla_launcher.observe.pools import Cards, OwnerKind, Pool, Reading
from carla_run.memory.cgroups import Cgroups
from tests import memory_hog
from tests.memory_hog import Hog
from tests.stack.stack import docker

pytestmark = pytest.mark.stack

LIMIT_MIB, TAKEN_MIB, FILE_MIB = 256, 80, 120


@pytest.fixture
def container(base_image: str) -> Iterator[str]:
    """Start a container with a limit that does nothing, and return its name."""
    name, program = f"carla-td3-test-{uuid.uuid4().hex[:8]}", f"{memory_hog.__file__}:/hog.py:ro"
    limit = ("--memory", f"{LIMIT_MIB}m", "--memory-swap", f"{LIMIT_MIB}m")
    docker("run", "-d", "--init", "--name", name, *limit, "-v", program, base_image, "sleep", "600")
    yield name
    docker("rm", "-f", "-v", name)


def first_pid(container: str) -> int:
    return int(docker("inspect", "-f", "{{.State.Pid}}", container).stdout)


def container_name(container: str) -> str | None:
    """Return a container's name as the engine knows it, by its id."""
    return docker("inspect", "-f", "{{.Name}}", container, check=False).stdout.strip().lstrip("/") or None


def figures(reading: Reading) -> tuple[float, float]:
    """Return what the agent's container holds, and what it can still take."""
    pool = reading.pool("ram:agent")
    assert isinstance(pool, Pool)
    assert pool.total.mib == LIMIT_MIB
    assert [owner.kind for owner in pool.owners] == [OwnerKind.AGENT]
    assert pool.free.mib is not None
    return pool.held_by(OwnerKind.AGENT), pool.free.mib


def usage_mib(pid: int) -> float:
    """Return what the kernel holds against the limit, pages of files included."""
    group = Cgroups().of(pid)
    assert group is not None
    usage = next(path for name in ("current", "usage_in_bytes") if (path := group.folder / f"memory.{name}").exists())
    return int(usage.read_text()) / 2**20


def test_anonymous_memory_counts_a_mapped_file_does_not_and_a_killed_child_is_counted(
    container: str, tmp_path: Path
) -> None:
    reader, pid = MemoryReader(tmp_path, Cards()), first_pid(container)

    def read() -> Reading:
        return reader.read(agent_pids={pid})

    with Hog("docker", "exec", "-i", container, "python3", "/hog.py") as hog:
        held, free = figures(read())
        assert hog.touch(TAKEN_MIB)
        taken = pytest.approx((held + TAKEN_MIB, free - TAKEN_MIB), abs=4)
        assert figures(read()) == taken

        docker("exec", container, "dd", "if=/dev/urandom", "of=/ring", "bs=1M", f"count={FILE_MIB}", "conv=fsync")
        assert hog.map("/ring")
        assert usage_mib(pid) > held + TAKEN_MIB + 0.9 * FILE_MIB, "the file is in memory, and the container pays"
        assert figures(read()) == taken

        another = MemoryReader(tmp_path, Cards())  # to whom the container isn't its own run's
        another.name_containers(container_name)
        host = another.read().pool("ram")
        assert host is not None
        assert f"python3 (container {container})" in [owner.name for owner in host.owners]

        assert [pool.oom_kills for pool in read().pools if pool.name == "ram:agent"] == [0]
        assert not hog.touch(2 * LIMIT_MIB)
        assert hog.wait() == 137
    assert [pool.oom_kills for pool in read().pools if pool.name == "ram:agent"] == [1]
    assert docker("inspect", "-f", "{{.State.Running}}", container).stdout.strip() == "true"
