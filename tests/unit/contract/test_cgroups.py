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

from carla_run.memory.cgroups import Cgroups, effective_limit
from tests.memory_hog import Hog, write_file
from tests.unit.kernel import KERNEL_MIB, MIB, Kernel, Level, Version

SCENARIOS = {
    "version 2: the least of its ancestors, without pages of files": (
        (Version.V2, "/", "/system.slice/docker-ab.scope"),
        {
            "": Level(None, 20_480),
            "system.slice": Level(3072, 2048, kills=7),
            "system.slice/docker-ab.scope": Level(4096, 1024, shared=256, files=2048, kills=2),
        },
        ("docker-ab.scope", 3072, 1024 - KERNEL_MIB, 1280 + KERNEL_MIB, 2),
    ),
    "version 1: the whole subtree, beside a hierarchy of version 2": (
        (Version.V1, "/", "/docker/ab"),
        {
            "": Level(None, 9216, kills=5),
            "docker": Level(None, 2048),
            "docker/ab": Level(3072, 1024, shared=512, files=1024, kills=3),
        },
        ("ab", 3072, 1536, 1536, 3),
    ),
    "version 1: no limit": ((Version.V1, "/", "/user"), {"user": Level(None, 1024)}, ("user", None, None, 1024, 0)),
    "version 2: no limit anywhere": (
        (Version.V2, "/", "/user.slice"),
        {"user.slice": Level(None, 1024)},
        ("user.slice", None, None, 1024 + KERNEL_MIB, 0),
    ),
    "version 2 beside a version 1 without memory": (
        (Version.BOTH, "/", "/a"),
        {"system.slice": Level(1024, 512)},
        ("system.slice", 1024, 512 - KERNEL_MIB, 512 + KERNEL_MIB, 0),
    ),
    "in a container the mount begins at its own group": (
        (Version.V1, "/docker/ab", "/docker/ab"),
        {"": Level(1024, 256)},
        ("cgroup", 1024, 768, 256, 0),
    ),
    "in a container, a group below": (
        (Version.V1, "/docker/ab", "/docker/ab/child"),
        {"": Level(1024, 256), "child": Level(None, 128)},
        ("child", 1024, 768, 128, 0),
    ),
    "no memory controller: the next above counts": (
        (Version.V2, "/", "/user.slice/session.scope"),
        {"user.slice": Level(1024, 512)},
        ("user.slice", 1024, 512 - KERNEL_MIB, 512 + KERNEL_MIB, 0),
    ),
    "over its limit it has no room": (
        (Version.V2, "/", "/a"),
        {"a": Level(1024, 2048)},
        ("a", 1024, 0, 2048 + KERNEL_MIB, 0),
    ),
}


@pytest.mark.parametrize(("kernel", "levels", "expected"), SCENARIOS.values(), ids=SCENARIOS)
def test_a_group_is_read_as_its_kernel_writes_it(
    tmp_path: Path, kernel: tuple[Version, str, str], levels: dict[str, Level], expected: tuple[object, ...]
) -> None:
    version, root, group = kernel
    files = Kernel(tmp_path, version, root)
    files.process(4711, group)
    for path, level in levels.items():
        files.level(path, level)
    found = Cgroups(files.proc).of(4711)
    assert found is not None
    assert (found.folder.name, found.limit_mib, found.room_mib, found.held_mib, found.oom_kills) == expected


@pytest.mark.parametrize(
    "field", ["anon", "shmem", "slab_unreclaimable", "kernel_stack", "pagetables", "percpu", "sock"]
)
def test_each_field_that_the_kernel_cannot_drop_counts(tmp_path: Path, field: str) -> None:
    files = Kernel(tmp_path)
    files.process("self", "/a")
    files.group("a", max=4096 * MIB, stat=f"{field} {1024 * MIB}\nfile {1024 * MIB}\nslab_reclaimable {1024 * MIB}")
    group = Cgroups(files.proc).of()
    assert group is not None
    assert (group.held_mib, group.room_mib) == (1024, 3072)


def test_what_is_outside_of_a_container_or_gone_has_no_group(tmp_path: Path) -> None:
    files = Kernel(tmp_path, Version.V1, "/docker/ab")
    files.process(8, "/docker/other")
    files.level("", Level(1024, 256))
    assert Cgroups(files.proc).of(8) is None
    assert Cgroups(files.proc).of(4711) is None
    assert Cgroups(tmp_path / "no proc").of() is None


LEVELS = st.lists(st.tuples(st.integers(0, 2**50), st.integers(0, 2**50)))


@given(LEVELS, st.tuples(st.integers(0, 2**50), st.integers(0, 2**50)))
def test_another_ancestor_never_makes_room(levels: list[tuple[int, int]], another: tuple[int, int]) -> None:
    limit, room = effective_limit(levels)
    less_limit, less_room = effective_limit([*levels, another])
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
