"""The control port: lines of text, on the loopback, that begin and end faults in a running server.

Owns the commands and their answers, one line each.
"""

from __future__ import annotations

import selectors
import socket

from carla_lite.faults.fault import FaultError
from carla_lite.faults.injector import Injector
from carla_lite.faults.spec import read
from carla_lite.protocol.channel import Channel, Connections

_LONGEST_LINE_BYTES = 4096


class ControlPort(Connections):
    """Takes ``fault SPEC``, ``clear`` and ``status``; answers ``ok``, ``ok frame=…`` or ``error`` and a sentence."""

    def __init__(self, listener: socket.socket, selector: selectors.BaseSelector, injector: Injector) -> None:
        self._injector = injector
        self._lines: dict[Channel, bytes] = {}
        super().__init__(listener, selector)

    def joined(self, channel: Channel) -> None:
        """Wait for its first line."""
        self._lines[channel] = b""

    def left(self, channel: Channel) -> None:
        """Forget its unfinished line."""
        del self._lines[channel]

    def received(self, channel: Channel, data: bytes) -> None:
        """Answer the complete lines."""
        *lines, self._lines[channel] = (self._lines[channel] + data).split(b"\n")
        if len(self._lines[channel]) > _LONGEST_LINE_BYTES:
            channel.close()
            return
        for line in lines:
            channel.send(f"{self._answer(line.decode('utf-8', 'replace').strip())}\n".encode())

    def _answer(self, line: str) -> str:
        command, _, spec = line.partition(" ")
        if command == "fault":
            return self._add(spec)
        if line == "clear":
            self._injector.clear()
            return "ok"
        if line == "status":
            return f"ok {self._injector.status()}"
        return f"error command '{line}' doesn't exist, expected fault KIND[:KEY=VALUE,…], clear or status"

    def _add(self, spec: str) -> str:
        try:
            for fault in read(spec):
                self._injector.add(fault)
        except FaultError as error:
            return f"error {error}"
        return "ok"
