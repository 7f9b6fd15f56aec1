"""A program that surveys memory as the launcher does: a reading, as JSON, for each line that it is given.

A line is ``{"simulator": [process ids], "agent": [process ids]}``. So a test sees what the real nvidia-ml-py makes of
the stub while the figures change.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path

from carla_launcher.observe.memory import MemoryReader
from carla_launcher.observe.pools import Cards


def main(run: str, simulator: str, agent: str) -> None:
    """Answer until the input ends."""
    reader = MemoryReader(Path(run), Cards(int(simulator), int(agent)))
    for line in sys.stdin:
        asked = json.loads(line)
        print(json.dumps(dataclasses.asdict(reader.read(asked["simulator"], asked["agent"]))), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
