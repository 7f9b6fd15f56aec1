"""Train the TD3 driver: ``python -m agent train`` under the name that users know."""

from __future__ import annotations

import typer

from agent.cli.commands import train

if __name__ == "__main__":
    typer.run(train)
