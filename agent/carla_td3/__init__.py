"""The TD3 driver: environment, algorithm, collector and learner.

Owns everything between the CARLA client and the checkpoint. Never imports ``launcher`` or ``carla_lite``:
it knows a simulator only as an address that the ``carla`` client can reach.
"""

import os
import tempfile

# Without either, as under some service managers, importing carla crashes.
if not {"HOME", "CARLA_CACHE_DIR"} & os.environ.keys():
    os.environ["CARLA_CACHE_DIR"] = os.path.join(tempfile.gettempdir(), f"carlaCache-{os.getuid()}")  # noqa: PTH118
