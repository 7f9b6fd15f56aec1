"""The control port: lines of text on the loopback by which faults begin and end in a server that runs.

Owns the commands and their answers, one line each.
"""

from __future__ import annotations

import selectors
import socket

from carla_lite.faults.fault import FaultError
from carla_lite.faults.injector import Injector
from carla_lite.faults.spec import read
from carla_lite.protocol.channel import Channel, accept_all

_LONGEST_LINE_BYTES = 4096


class ControlPort:
    """Takes ``fault SPEC``, ``clear`` and ``status``; answers ``ok``, ``ok frame=…`` or ``error`` and a sentence."""

    def __init__(self, listener: socket.socket, selector: selectors.BaseSelector, injector: Injector) -> None:
        self._listener = listener
        self._selector = selector
        self._injector = injector
        self._lines: dict[Channel, bytes] = {}
        selector.register(listener, selectors.EVENT_READ, self._accept)

    def close(self) -> None:
        """Stop listening and end every connection."""
        self._selector.unregister(self._listener)
        self._listener.close()
        for channel in list(self._lines):
            channel.close()

    def _accept(self, _mask: int) -> None:
        for sock in accept_all(self._listener):
            self._lines[Channel(sock, self._selector, self._received, self._forget)] = b""

    def _forget(self, channel: Channel) -> None:
        del self._lines[channel]

    def _received(self, channel: Channel, data: bytes) -> None:
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
