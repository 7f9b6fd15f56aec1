"""A client of carla-lite's control port."""

from __future__ import annotations

import socket


def tell(control_port: int, line: str) -> str:
    """Send one line and return the line that answers it: ``ok``, ``ok frame=…`` or ``error`` and a sentence."""
    with socket.create_connection(("127.0.0.1", control_port), timeout=10) as connection:
        connection.sendall(f"{line}\n".encode())
        with connection.makefile(encoding="utf-8") as answers:
            return answers.readline().rstrip("\n")
