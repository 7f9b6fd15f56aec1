"""What a line of the simulator's log means, if it means anything (facts.md, section 4). Pure."""

from __future__ import annotations

import re

from launcher.observe.observation import Sign

LONGEST = 400
"""Characters of a line that are kept: a line of a log can be anything."""

_MEANINGS = (
    (
        Sign.OUT_OF_VRAM,
        r"VK_ERROR_OUT_OF_DEVICE_MEMORY|VkResult=-2(?!\d)|Out of Device Memory, Requested=|Out of memory on Vulkan"
        r"|Out of video memory|Failed to allocate Device Memory",
    ),
    (Sign.DEVICE_LOST, r"VK_ERROR_DEVICE_LOST"),
    (Sign.PORT_TAKEN, r"bind: Address already in use"),
    (Sign.LAVAPIPE, r"lavapipe is not a conformant"),
    # SIGILL, SIGABRT, SIGBUS, SIGFPE, SIGSEGV; a SIGTERM that Unreal reports in the same words is no crash.
    (Sign.CRASH, r"Signal (?:4|6|7|8|11) caught"),
)
_PATTERNS = tuple((sign, re.compile(pattern, re.IGNORECASE)) for sign, pattern in _MEANINGS)


def sign_of(line: str) -> Sign | None:
    """Return what the line is a sign of; None for noise. Of two meanings, the one that explains more."""
    return next((sign for sign, pattern in _PATTERNS if pattern.search(line)), None)


def signs_in(lines: list[str]) -> tuple[tuple[Sign, str], ...]:
    """Return the lines that mean something, each with its meaning."""
    found = ((sign_of(line), line.strip()[:LONGEST]) for line in lines)
    return tuple((sign, line) for sign, line in found if sign is not None)
