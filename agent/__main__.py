"""``python -m agent``: the agent's commands. Owns nothing but their list."""

from __future__ import annotations

import typer

from agent.cli import commands

app = typer.Typer(
    help="Train, evaluate and examine the TD3 driver.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
app.command()(commands.train)
app.command()(commands.evaluate)
app.command()(commands.record)
app.command()(commands.stability)
app.command()(commands.footprint)
app.command()(commands.request)

if __name__ == "__main__":
    app()
