"""carla-lite's faults on a real engine: asked for in the environment, and in a container that runs."""

from __future__ import annotations

import pytest

from tests.stack.conftest import StartStack
from tests.stack.stack import Stack, docker
from tests.wire.trainee import SMALL

pytestmark = [pytest.mark.stack, pytest.mark.timeout(1500)]

CONTROL_PORT = 2099  # of the container's own loopback


def tell(stack: Stack, line: str) -> str:
    """Say a line to the control port, from inside the container as it must be; return the answer, if there was time."""
    ask = f"exec 3<>/dev/tcp/127.0.0.1/{CONTROL_PORT}; echo '{line}' >&3; head -n 1 <&3"
    return docker("exec", stack.container("carla"), "bash", "-c", ask, check=False).stdout.strip()


def ended(stack: Stack) -> bool:
    return str(stack.state("carla")["Status"]) == "exited"


@pytest.mark.long
def test_the_environment_has_the_simulator_die_of_its_vram(start_stack: StartStack) -> None:
    stack = start_stack(SMALL, LITE_FAULTS="vulkan-oom:after_s=12 log:lines=noise", RESTART="no")
    stack.up("carla")
    assert stack.state("carla")["Health"]["Status"] == "healthy"
    stack.wait(lambda: ended(stack))
    state = stack.state("carla")
    assert (state["ExitCode"], state["OOMKilled"]) == (139, False)
    said = stack.logs("carla").splitlines()
    assert said.index("sh: 1: xdg-user-dir: not found") < said.index(" with error VK_ERROR_OUT_OF_DEVICE_MEMORY")


@pytest.mark.parametrize(
    ("fault", "code"),
    [
        ("crash", 139),
        pytest.param("crash:signal=KILL", 137, marks=pytest.mark.long),
        pytest.param("exit:code=3", 3, marks=pytest.mark.long),
    ],
)
def test_a_running_container_is_told_how_to_end(start_stack: StartStack, fault: str, code: int) -> None:
    stack = start_stack(SMALL, LITE_CONTROL_PORT=str(CONTROL_PORT), RESTART="no")
    stack.up("carla")
    assert tell(stack, "status").startswith("ok frame=")
    assert tell(stack, f"fault {fault}") in ("ok", ""), "the container's end can end this command before its answer"
    stack.wait(lambda: ended(stack))
    assert (stack.state("carla")["ExitCode"], stack.state("carla")["OOMKilled"]) == (code, False)


@pytest.mark.long
def test_memory_that_grows_past_the_limit_is_ended_by_the_kernel(start_stack: StartStack) -> None:
    stack = start_stack(SMALL, LITE_CONTROL_PORT=str(CONTROL_PORT), CARLA_MEMORY="256m", RESTART="no")
    stack.up("carla")
    assert tell(stack, "fault grow:mib_per_min=3000") == "ok"
    stack.wait(lambda: ended(stack))
    assert (stack.state("carla")["ExitCode"], stack.state("carla")["OOMKilled"]) == (137, True)
