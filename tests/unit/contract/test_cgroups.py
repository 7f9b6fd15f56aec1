"""Control groups as two versions of the kernel write them: the effective limit, what counts, and OOM kills."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carla_run.memory.cgroups import Cgroups, least
from tests.memory_hog import Hog, write_file

MIB = 2**20
GIB = 2**30
UNLIMITED_V1 = 9223372036854771712
V2_MOUNT = "24 23 0:22 {root} {point} rw,nosuid,nodev,noexec,relatime shared:4 - cgroup2 cgroup2 rw,nsdelegate"
V1_MOUNTS = """\
31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct
35 31 0:32 {root} {point} rw,relatime shared:12 - cgroup cgroup rw,memory
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw"""
V1_GROUPS = """\
9:name=systemd:{group}
5:devices:{group}
4:memory:{group}
2:cpu,cpuacct:{group}
0::/system.slice"""


class Tree:
    """A /proc and a hierarchy of control groups as kernels write them, in a folder."""

    def __init__(self, root: Path) -> None:
        self.proc, self.point = root / "proc", root / "cgroup"
        (self.proc / "self").mkdir(parents=True)

    def mount(self, lines: str, root: str = "/") -> None:
        (self.proc / "self" / "mountinfo").write_text(lines.format(root=root, point=self.point) + "\n")

    def process(self, pid: int | str, groups: str, group: str) -> None:
        (self.proc / str(pid)).mkdir(exist_ok=True)
        (self.proc / str(pid) / "cgroup").write_text(groups.format(group=group) + "\n")

    def group(self, path: str, **files: object) -> None:
        folder = self.point / path
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            (folder / f"memory.{name}").write_text(f"{content}\n")


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


def v2_stat(anon: int, shmem: int = 0, file: int = 0) -> str:
    """Return memory.stat of Linux 6.1, as far as it concerns us, and more lines that it has."""
    return (
        f"anon {anon}\nfile {file + shmem}\nkernel {9 * MIB}\nkernel_stack {MIB}\npagetables {2 * MIB}\n"
        f"sec_pagetables 0\npercpu {MIB}\nsock 0\nvmalloc 0\nshmem {shmem}\nzswap 0\nzswapped 0\n"
        f"file_mapped {file}\nslab_reclaimable {4 * MIB}\nslab_unreclaimable {MIB}\nslab {5 * MIB}\npgfault 12345"
    )


def v1_stat(rss: int, shmem: int = 0, cache: int = 0) -> str:
    """Return memory.stat of version 1: of the group alone, then with all below it."""
    return (
        f"cache {MIB}\nrss {MIB}\nshmem 0\nmapped_file 4096\nhierarchical_memory_limit {UNLIMITED_V1}\n"
        f"total_cache {cache + shmem}\ntotal_rss {rss}\ntotal_shmem {shmem}\ntotal_mapped_file {cache}"
    )


KERNEL_MIB = 5
"""What v2_stat's kernel pages come to that can't be dropped."""


def test_version_2_a_container_is_limited_by_the_least_of_its_ancestors(tree: Tree) -> None:
    tree.mount(V2_MOUNT)
    tree.process(4711, "0::{group}", "/system.slice/docker-ab.scope")
    tree.group("", stat=v2_stat(20 * GIB))
    tree.group("system.slice", max=3 * GIB, stat=v2_stat(2 * GIB), events="low 0\nhigh 0\nmax 9\noom 1\noom_kill 7")
    tree.group(
        "system.slice/docker-ab.scope",
        max=4 * GIB,
        stat=v2_stat(GIB, shmem=GIB // 4, file=2 * GIB),
        events="low 0\nhigh 0\nmax 31\noom 2\noom_kill 2\noom_group_kill 0",
    )
    group = Cgroups(tree.proc).of(4711)
    assert group is not None
    assert group.folder == tree.point / "system.slice/docker-ab.scope"
    assert (group.limit_mib, group.room_mib) == (3 * 1024, 1024 - KERNEL_MIB)
    assert group.held_mib == 1024 + 256 + KERNEL_MIB, "pages of files aren't held"
    assert group.oom_kills == 2


def test_version_1_counts_the_whole_subtree_beside_a_hierarchy_of_version_2(tree: Tree) -> None:
    tree.mount(V1_MOUNTS)
    tree.process(4711, V1_GROUPS, "/docker/ab")
    tree.group("", limit_in_bytes=UNLIMITED_V1, stat=v1_stat(9 * GIB), oom_control="oom_kill_disable 0\noom_kill 5")
    tree.group("docker", limit_in_bytes=UNLIMITED_V1, stat=v1_stat(2 * GIB))
    tree.group(
        "docker/ab",
        limit_in_bytes=3 * GIB,
        stat=v1_stat(GIB, shmem=GIB // 2, cache=GIB),
        oom_control="oom_kill_disable 0\nunder_oom 0\noom_kill 3",
    )
    group = Cgroups(tree.proc).of(4711)
    assert group is not None
    assert (group.limit_mib, group.room_mib, group.held_mib) == (3 * 1024, 1536, 1536)
    assert group.oom_kills == 3


def test_version_1_a_group_without_a_limit_has_none(tree: Tree) -> None:
    tree.mount(V1_MOUNTS)
    tree.process("self", V1_GROUPS, "/user")
    tree.group("user", limit_in_bytes=UNLIMITED_V1, stat=v1_stat(GIB))
    group = Cgroups(tree.proc).of()
    assert group is not None
    assert (group.limit_mib, group.room_mib) == (None, None)


def test_version_2_beside_a_version_1_without_memory_is_read(tree: Tree) -> None:
    tree.mount(V1_MOUNTS.replace("rw,memory", "rw,pids").replace("/sys/fs/cgroup/unified", "{point}"))
    tree.process("self", V1_GROUPS.replace("4:memory:", "4:pids:"), "/a")
    tree.group("system.slice", max=GIB, stat=v2_stat(GIB // 2))
    group = Cgroups(tree.proc).of()
    assert group is not None
    assert group.limit_mib == 1024


def test_version_2_a_group_without_a_limit_anywhere_has_none(tree: Tree) -> None:
    tree.mount(V2_MOUNT)
    tree.process("self", "0::{group}", "/user.slice")
    tree.group("user.slice", max="max", stat=v2_stat(GIB))
    group = Cgroups(tree.proc).of()
    assert group is not None
    assert (group.limit_mib, group.room_mib, group.oom_kills) == (None, None, 0)


def test_in_a_container_the_mount_begins_at_its_own_group(tree: Tree) -> None:
    tree.mount(V1_MOUNTS, root="/docker/ab")
    tree.process("self", V1_GROUPS, "/docker/ab")
    tree.process(7, V1_GROUPS, "/docker/ab/child")
    tree.process(8, V1_GROUPS, "/docker/other")
    tree.group("", limit_in_bytes=GIB, stat=v1_stat(GIB // 4))
    tree.group("child", limit_in_bytes=UNLIMITED_V1, stat=v1_stat(GIB // 8))
    groups = Cgroups(tree.proc)
    group, child = groups.of(), groups.of(7)
    assert group is not None
    assert child is not None
    assert (group.folder, group.limit_mib, group.room_mib) == (tree.point, 1024, 768)
    assert (child.folder, child.held_mib, child.room_mib) == (tree.point / "child", 128, 768)
    assert groups.of(8) is None, "it is outside of what the container sees"


def test_where_a_group_has_no_memory_controller_the_next_above_counts(tree: Tree) -> None:
    tree.mount(V2_MOUNT)
    tree.process("self", "0::{group}", "/user.slice/session.scope")
    tree.group("user.slice", max=GIB, stat=v2_stat(GIB // 2))
    tree.group("user.slice/session.scope")
    group = Cgroups(tree.proc).of()
    assert group is not None
    assert (group.folder.name, group.held_mib) == ("user.slice", 512 + KERNEL_MIB)


def test_a_group_over_its_limit_has_no_room_left(tree: Tree) -> None:
    tree.mount(V2_MOUNT)
    tree.process("self", "0::{group}", "/a")
    tree.group("a", max=GIB, stat=v2_stat(2 * GIB))
    group = Cgroups(tree.proc).of()
    assert group is not None
    assert group.room_mib == 0


def test_a_process_that_is_gone_and_a_machine_without_control_groups_have_none(tree: Tree) -> None:
    assert Cgroups(tree.proc).of() is None
    tree.mount(V2_MOUNT)
    assert Cgroups(tree.proc).of(4711) is None


LEVELS = st.lists(st.tuples(st.integers(0, 2**50), st.integers(0, 2**50)))


@given(LEVELS, st.tuples(st.integers(0, 2**50), st.integers(0, 2**50)))
def test_another_ancestor_never_makes_room(levels: list[tuple[int, int]], another: tuple[int, int]) -> None:
    limit, room = least(levels)
    less_limit, less_room = least([*levels, another])
    assert less_limit is not None
    assert less_room is not None
    assert less_limit == min([each for each, _ in levels] + [another[0]])
    assert 0 <= less_room <= less_limit
    assert limit is None or less_limit <= limit
    assert room is None or less_room <= room
    assert all(less_room <= max(0, each - held) for each, held in levels)


@contextlib.contextmanager
def real_group(limit_mib: int) -> Iterator[Path]:
    """Make a group with a limit below this process's own, or skip the test; its processes are gone before its end."""
    own = Cgroups().of()
    if own is None:
        pytest.skip("this machine has no memory control groups")
    folder = own.folder / f"test-{os.getpid()}"
    limit = folder / ("memory.max" if (own.folder / "cgroup.controllers").exists() else "memory.limit_in_bytes")
    try:
        folder.mkdir()
        limit.write_text(str(limit_mib * MIB))
    except OSError as error:
        with contextlib.suppress(OSError):
            folder.rmdir()
        pytest.skip(f"a control group can't be made here ({error.strerror})")
    with contextlib.suppress(OSError):
        (folder / "memory.swap.max").write_text("0")
    yield folder
    for _ in range(100):
        with contextlib.suppress(OSError):
            folder.rmdir()
            return
        time.sleep(0.05)


def test_the_real_kernel_s_group_counts_anonymous_memory_and_kills_but_no_files(tmp_path: Path) -> None:
    file = write_file(tmp_path / "ring", 60)
    with real_group(limit_mib=160) as folder, Hog() as hog, Hog() as witness:
        for each in (hog, witness):
            (folder / "cgroup.procs").write_text(str(each.pid))
        groups = Cgroups()

        def see(held_mib: float, room_mib: float, oom_kills: int) -> None:
            group = groups.of(witness.pid)
            assert group is not None
            assert (group.folder, group.limit_mib) == (folder, 160)
            assert group.held_mib == pytest.approx(held_mib, abs=4)
            assert group.room_mib == pytest.approx(room_mib, abs=4)
            assert group.oom_kills == oom_kills

        see(0, 160, 0)  # what they took before they came stays with the group that they came from
        assert hog.touch(80)
        see(80, 80, 0)
        assert witness.map(file)
        see(80, 80, 0)
        assert not hog.touch(300)
        assert hog.wait() == -signal.SIGKILL
        see(0, 160, 1)
