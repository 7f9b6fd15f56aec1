"""``python -m carla_td3.collector SOCKET PARENT``: the collector process, started by ``trainer.collector_process``.

It ends with its learner.
"""

from __future__ import annotations

import socket
import sys
from pathlib import Path

import torch

from carla_run.exits import Exit
from carla_run.paths import RunPaths
from carla_td3 import config
from carla_td3.collector.collector import Collector
from carla_td3.collector.parent import die_with_parent
from carla_td3.exchange.child import run_spawned
from carla_td3.exchange.messages import Channel, ChannelClosedError, Configure, Failed
from carla_td3.exits import exit_code, sentence


def _run_collector(learner: socket.socket) -> Exit:
    """Run a collector and return its exit code. An error that a new collector couldn't mend is reported first."""
    channel = Channel(learner)
    try:
        order = channel.receive(timeout_s=60.0)
        assert isinstance(order, Configure), f"the first order is {order!r}, expected Configure"
        settings = config.validate(order.config, source="the learner's configuration")
        run = RunPaths(Path(order.run_directory))
        Collector(settings, run, channel, order.collector, order.until_episode).run(order.rehearse)
    except ChannelClosedError:
        return Exit.FINISHED
    except Exception as error:
        code = exit_code(error)
        if code is None:
            raise  # a bug of ours, or a chance event: the learner tries another collector
        channel.send(Failed(code=code, sentence=sentence(error)))
        return code
    return Exit.FINISHED


def main() -> None:
    """Entry point of the child process."""
    die_with_parent(parent_pid=int(sys.argv[2]))
    torch.set_num_threads(1)
    run_spawned(_run_collector)


if __name__ == "__main__":
    main()
