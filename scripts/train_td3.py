"""Train the TD3 driver: ``python -m carla_td3 train`` under the name that users know."""

from __future__ import annotations

import typer

from carla_run.program import program

if __name__ == "__main__":
    with program("agent", extra="agent"):
        from carla_td3.cli.commands import train

        typer.run(train)
