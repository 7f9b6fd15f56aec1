"""``python -m agent``: the agent's commands. Owns nothing but their list."""

from __future__ import annotations

import typer

from contract.program import interruptible, program

app = typer.Typer(
    help="Train, evaluate and examine the TD3 driver.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)

with interruptible("agent"):  # it loads for a second
    from agent.cli import commands

for command in (
    *(commands.train, commands.evaluate, commands.record, commands.stability),
    *(commands.footprint, commands.request),
):
    app.command()(command)

if __name__ == "__main__":
    with program("agent"):
        app()
