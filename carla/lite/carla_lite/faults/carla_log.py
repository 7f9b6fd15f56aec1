"""The messages of CARLA 0.9.16 when it fails, line by line, with trailing spaces. Prints nothing itself.

Taken from reports of carla-simulator/carla: issues 7164, 2826 (the line that asks for memory), 8633, 8537, 3062, 9015
and 4687.
"""

from __future__ import annotations

_FIRST = ("4.26.2-0+++UE4+Release-4.26 522 0", "Disabling core dumps.")
_VULKAN = "/home/jenkins/UnrealEngine_4.26/Engine/Source/Runtime/VulkanRHI/Private"
_LAST = (
    "Signal 11 caught.",
    "Malloc Size=65538 LargeMemoryPoolOffset=65554 ",
    "CommonUnixCrashHandler: Signal=11",
    "Malloc Size=131160 LargeMemoryPoolOffset=196744 ",
    "Malloc Size=131160 LargeMemoryPoolOffset=327928 ",
    "Engine crash handling finished; re-raising signal 11 for the default handler. Good bye.",
    "Segmentation fault (core dumped)",
)

LINES: dict[str, tuple[str, ...]] = {
    "noise": (*_FIRST, "sh: 1: xdg-user-dir: not found"),
    "lavapipe": ("WARNING: lavapipe is not a conformant vulkan implementation, testing use only.",),
    "vulkan-oom": (
        "LowLevelFatalError [File:Unknown] [Line: 803] ",
        "Result failed, VkResult=-2",
        f" at {_VULKAN}/VulkanSwapChain.cpp:530 ",
        " with error VK_ERROR_OUT_OF_DEVICE_MEMORY",
        *_LAST,
    ),
    "vulkan-allocation": (
        "LowLevelFatalError [File:Unknown] [Line: 279] ",
        "Out of Device Memory, Requested=24000.00Kb MemTypeIndex=7",
        *_LAST,
    ),
    "device-lost": (
        "LowLevelFatalError [File:Unknown] [Line: 803] ",
        "VulkanRHI::vkQueueSubmit(Queue, 1, &SubmitInfo, Fence->GetHandle()) failed, VkResult=-4",
        f" at {_VULKAN}/VulkanQueue.cpp:71 ",
        " with error VK_ERROR_DEVICE_LOST",
        *_LAST,
    ),
    "segfault": _LAST,
    "port-taken": (
        "LowLevelFatalError [File:Unknown] [Line: 136] ",
        "Exception thrown: bind: Address already in use",
        *_LAST,
    ),
}
"""Messages by the names that ``--fault log:lines=NAME`` accepts."""
