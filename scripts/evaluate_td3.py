"""Evaluate drivers on held-out routes: ``python -m agent evaluate`` under the name that users know."""

from __future__ import annotations

import typer

from agent.cli.commands import evaluate

if __name__ == "__main__":
    typer.run(evaluate)
