"""Asks the GPU from a separate process and prints the answer as JSON: ``python -m carla_td3.memory.gpu_probe WHAT``.

A context keeps its 300 to 600 MiB until its process ends, and the learner may choose the CPU just because they aren't
there. Exits with 71 if the GPU is too full for a context.
"""

from __future__ import annotations

import json
import sys

from carla_run.exits import Exit
from carla_td3.exits import exhausted_pool

ROOM, BFLOAT16 = "room", "bfloat16"


def main(what: str) -> Exit:
    """Print free and total bytes, or whether the GPU computes bfloat16 in hardware."""
    import torch

    try:
        answer = torch.cuda.mem_get_info() if what == ROOM else torch.cuda.is_bf16_supported(including_emulation=False)
    except RuntimeError as error:
        if exhausted_pool(error) is None:
            raise
        return Exit.OUT_OF_MEMORY
    print(json.dumps(answer))
    return Exit.FINISHED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
