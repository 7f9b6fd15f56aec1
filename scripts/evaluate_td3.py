"""Evaluate drivers on held-out routes: ``python -m agent evaluate`` under the name that users know."""

from __future__ import annotations

import typer

from contract.program import program

if __name__ == "__main__":
    with program("agent"):
        from agent.cli.commands import evaluate

        typer.run(evaluate)
