"""Connection and log against real things: a simulator that is killed or stopped, files that grow, rotate and flood."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carla_launcher.observe import health
from carla_launcher.observe.health import Address, Health
from carla_launcher.observe.observation import Sign
from carla_launcher.observe.simulator import IdleConnection, sign_of, signs_in
from carla_launcher.observe.tail import MAX_BYTES, Tail
from tests.conftest import StartServer
from tests.crowd import PATIENCE_S, until


def stands(connection: IdleConnection) -> Callable[[], bool]:
    def look() -> bool:
        connection.look()
        return connection._stood

    return look


def test_end_is_forgotten_with_the_next_simulator(
    start_server: StartServer,
) -> None:
    server = start_server()
    connection = IdleConnection(Address("127.0.0.1", server.port))
    until(stands(connection))
    assert not connection.look()
    os.kill(server.process.pid, signal.SIGKILL)
    until(connection.look)
    assert connection.look(), "it stays lost while nothing listens"
    server.process.wait()
    start_server(port=server.port)
    until(lambda: not connection.look())
    connection.close()


def test_nobody_there_is_no_loss() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = int(taken.getsockname()[1])
    connection = IdleConnection(Address("127.0.0.1", port))
    assert not any(connection.look() for _ in range(5))


@pytest.mark.parametrize("host", ["no-such-host.invalid", "a..b", "x" * 64])
def test_a_name_that_does_not_resolve_is_no_loss(host: str) -> None:
    connection = IdleConnection(Address(host, 2000))
    assert not any(connection.look() for _ in range(2))


def test_proxys_connections_are_no_deaths() -> None:
    with socket.create_server(("127.0.0.1", 0)) as proxy:
        threading.Thread(target=hang_up_on_all, args=(proxy,), daemon=True).start()
        connection = IdleConnection(Address("127.0.0.1", int(proxy.getsockname()[1])))
        for _ in range(8):
            assert not connection.look()
            time.sleep(0.05)


def hang_up_on_all(proxy: socket.socket) -> None:
    while True:
        try:
            proxy.accept()[0].close()
        except OSError:
            return


def test_a_stopped_simulator_keeps_its_connection(start_server: StartServer) -> None:
    server = start_server()
    connection = IdleConnection(Address("127.0.0.1", server.port))
    until(stands(connection))
    server.process.send_signal(signal.SIGSTOP)
    try:
        assert not any(connection.look() for _ in range(10))
        assert "isn't answered" in health.answers(Address("127.0.0.1", server.port), 0.3).problem
    finally:
        server.process.send_signal(signal.SIGCONT)


def test_version_alone_is_asked(start_server: StartServer) -> None:
    assert health.answers(Address("127.0.0.1", start_server().port), PATIENCE_S) == Health("0.9.16")


# The log


NO_VULKAN = (
    *("LAYER_NOT_PRESENT", "EXTENSION_NOT_PRESENT", "FEATURE_NOT_PRESENT"),
    *("INCOMPATIBLE_DRIVER", "FORMAT_NOT_SUPPORTED"),
)
NO_VULKAN_WORDS = (
    "MessageBox: Incompatible Vulkan driver found!: Cannot find a compatible Vulkan driver (ICD).",
    "Cannot find a compatible Vulkan device or driver. Try updating your video driver.",
    "Vulkan driver doesn't contain specified extensions:",
    "LogVulkanRHI: Error: Missing required Vulkan extension: VK_KHR_surface",
    "Vulkan failed to create instance (apiVersion=0x%x)",  # 4.26 leaves out the n
    "Vulkan failed to select physical device after passing profile checks.",
    "Failed to find all required Vulkan entry points; make sure your driver supports Vulkan!",
    "Unable to load Vulkan library and/or acquire the necessary function pointers.",
    "No GPU(s)/Driver(s) that support Vulkan were found!",
    "Couldn't enumerate physical devices! Make sure your drivers are up to date",
    "Vulkan Driver is required to run the engine.",
    "Failed to load Vulkan Driver which is required to run the engine.",
    "Vulkan or OpenGL (3.2) support is required to run the engine.",
    "Assertion failed: 0 [File:VulkanRHI.cpp] [Line: 1] No devices found!",
)


@pytest.mark.parametrize(
    ("line", "sign"),
    [
        ("LogVulkanRHI: Error: Result failed, VkResult=-2", Sign.OUT_OF_VRAM),
        ("VulkanRHI::vkAllocateMemory failed: VK_ERROR_OUT_OF_DEVICE_MEMORY", Sign.OUT_OF_VRAM),
        ("LogVulkanRHI: Error: Out of Device Memory, Requested=4194304.00 Kb", Sign.OUT_OF_VRAM),
        ("Fatal error: Out of memory on Vulkan; Size:134217728", Sign.OUT_OF_VRAM),
        ("Out of video memory trying to allocate a rendering resource", Sign.OUT_OF_VRAM),
        ("Failed to allocate Device Memory, Requested=131072.00Kb", Sign.OUT_OF_VRAM),
        ("VulkanRHI: Result failed, VkResult=-4 (VK_ERROR_DEVICE_LOST)", Sign.DEVICE_LOST),
        ("Signal 11 caught.", Sign.CRASH),
        ("Signal 6 caught.", Sign.CRASH),
        ("Signal 15 caught.", None),
        ("terminate called: bind: Address already in use", Sign.PORT_TAKEN),
        ("WARNING: lavapipe is not a conformant vulkan implementation, testing use only.", Sign.LAVAPIPE),
        ("Result failed, VkResult=-1", Sign.OUT_OF_RAM),
        ("with error VK_ERROR_OUT_OF_HOST_MEMORY", Sign.OUT_OF_RAM),
        ("Out of Host Memory, Requested=512.00Kb MemTypeIndex=3", Sign.OUT_OF_RAM),
        ("Failed to allocate Host Memory, Requested=512.00Kb MemTypeIndex=3", Sign.OUT_OF_RAM),
        ("Ran out of memory allocating 65536 bytes with alignment 0", Sign.OUT_OF_RAM),
        ("Freeing 33554432 bytes from backup pool to handle out of memory.", Sign.OUT_OF_RAM),
        ("terminate called after throwing an instance of 'std::bad_alloc'", Sign.OUT_OF_RAM),
        ("what():  Resource temporarily unavailable", Sign.OUT_OF_RAM),
        ("Out of Local Memory, Requested8192.00KB MemTypeIndex=1", Sign.OUT_OF_VRAM),
        ("Out of memory on Vulkan; MemoryTypeIndex=1, AllocSize=16.000MB", Sign.OUT_OF_VRAM),
        ("vkCreateDevice failed, VkResult=-3", Sign.VULKAN_FAILED),
        ("with error VK_ERROR_INITIALIZATION_FAILED", Sign.VULKAN_FAILED),
        *((f"Result failed, VkResult={code}", Sign.NO_VULKAN) for code in (-6, -7, -8, -9, -11)),
        *((f"with error VK_ERROR_{name}", Sign.NO_VULKAN) for name in NO_VULKAN),
        *((words, Sign.NO_VULKAN) for words in NO_VULKAN_WORDS),
        ("Refusing to run with the root privileges.", Sign.ROOT),
        ("CarlaUE4: error while loading shared libraries: libomp.so.5: cannot open shared object", Sign.NO_LIBRARY),
        ("CarlaUE4: /lib/libm.so.6: version `GLIBC_2.35' not found (required by CarlaUE4)", Sign.NO_LIBRARY),
        ("Submit failed, VkResult=-4", Sign.DEVICE_LOST),
        ("GameThread timed out waiting for RenderThread after 60.00 secs", Sign.RENDERER_HUNG),
        ("GPU has hung or crashed!", Sign.RENDERER_HUNG),
        *((f"Result failed, VkResult={code}", Sign.CRASH) for code in (-5, -10, -12, -13, -1000069000)),
        ("with error VK_ERROR_OUT_OF_POOL_MEMORY_KHR", Sign.CRASH),
        ("Assertion failed: Index < Num() [File:Array.h] [Line: 1]", Sign.CRASH),
        ("Unhandled Exception: SIGSEGV: invalid attempt to read memory at address 0x8", Sign.CRASH),
        ("sh: 1: xdg-user-dir: not found", None),
        ("VkResult=-22", None),
        ("VkResult=-1000001004", None),  # of a window's surface, which a simulator off screen hasn't
        ("4.26.2-0+++UE4+Release-4.26 522 0", None),
        ("", None),
    ],
)
def test_lines_mean_what_carla_means_by_them(line: str, sign: Sign | None) -> None:
    assert sign_of(line) is sign
    assert signs_in([f"  {line}  "]) == (() if sign is None else ((sign, line),))


def test_a_growing_log_gives_each_line_once_whole(tmp_path: Path) -> None:
    log = tmp_path / "simulator.log"
    log.write_text("of a run before\nhalf a li")
    tail = Tail(log, from_end=True)
    assert tail.look() == []
    with log.open("ab", buffering=0) as file:
        file.write(b"ne\nsecond\r\nthi")
        assert tail.look() == ["ne", "second"]
        assert tail.look() == []
        file.write(b"rd \xff\xfe\x00\n\n")
        assert tail.look() == ["third \ufffd\ufffd\x00", ""]


def test_rotated_truncated_and_missing_logs_lose_no_line(tmp_path: Path) -> None:
    log = tmp_path / "simulator.log"
    tail = Tail(log, from_end=False)
    assert tail.look() == []
    log.write_text("first\n")
    assert tail.look() == ["first"]
    with log.open("a") as file:
        file.write("last of the old\n")
    log.rename(tmp_path / "simulator.log.1")
    assert tail.look() == ["last of the old"]
    log.write_text("new\n")
    assert tail.look() == ["new"]
    log.write_text("x\n")
    assert tail.look() == ["x"], "truncated: read from its beginning"


def test_of_a_flood_the_newest_lines_are_read(tmp_path: Path) -> None:
    log = tmp_path / "simulator.log"
    tail = Tail(log, from_end=False)
    with log.open("w") as file:
        file.writelines(f"noise {number:08d}\n" for number in range(200_000))
        file.write("Signal 11 caught.\n")
    lines = tail.look()
    assert lines[-1] == "Signal 11 caught."
    assert sum(map(len, lines)) <= MAX_BYTES
    assert tail.look() == []


@given(st.lists(st.binary(max_size=40), max_size=30), st.randoms(use_true_random=False))
def test_lines_come_whole_however_they_are_written(tmp_path_factory, parts, rng) -> None:
    log = tmp_path_factory.mktemp("log") / "log"
    tail = Tail(log, from_end=False)
    lines, written = [], b"".join(parts)
    with log.open("ab", buffering=0) as file:
        for part in parts:
            file.write(part)
            if rng.random() < 0.5:
                lines += tail.look()
    lines += tail.look()
    expected = [line.decode(errors="replace").rstrip("\r") for line in written.split(b"\n")[:-1]]
    assert lines == expected
    tail.close()
