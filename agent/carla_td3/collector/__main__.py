"""``python -m carla_td3.collector SOCKET PARENT``: the collector's process, started by ``trainer.collector_process``.

Ends with its learner, and leaves by ``os._exit``: at interpreter exit a sensor just stopped can abort (protocol
section 5.5).
"""

from __future__ import annotations

import os
import socket
import sys
import traceback
from pathlib import Path

import torch

from carla_run.exits import Exit
from carla_run.paths import RunPaths
from carla_td3 import config
from carla_td3.collector.collector import Collector
from carla_td3.collector.parent import die_with
from carla_td3.exchange.messages import Channel, ChannelClosedError, Configure, Failed
from carla_td3.exits import exit_code, sentence


def _obey(channel: Channel) -> Exit:
    """Run a collector and return its exit code; what a new one couldn't mend is reported first."""
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
            raise  # a mistake of ours, or a chance event: the learner tries another collector
        channel.send(Failed(code=code, sentence=sentence(error)))
        return code
    return Exit.FINISHED


def main() -> None:
    """Entry point of the child process."""
    die_with(parent_pid=int(sys.argv[2]))
    torch.set_num_threads(1)
    code = Exit.CRASH
    try:
        code = _obey(Channel(socket.socket(fileno=int(sys.argv[1]))))
    except Exception:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
