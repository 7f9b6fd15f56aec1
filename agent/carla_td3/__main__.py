"""The command ``carla-td3``, and ``python -m carla_td3``.

It only lists the agent's commands; ``cli`` holds what they do.
"""

from __future__ import annotations

import typer

from carla_run.program import interruptible, program

app = typer.Typer(
    help="Train, evaluate and examine the TD3 driver.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)

with interruptible("agent"):  # loading takes about a second
    from carla_td3.cli import commands, driving

for command in (
    *(commands.train, driving.drive, commands.evaluate, driving.export, commands.record),
    *(commands.stability, commands.footprint, commands.request),
):
    app.command()(command)


def main() -> None:
    """Run the command that the command line names."""
    with program("agent", extra="agent"):
        app()


if __name__ == "__main__":
    main()
