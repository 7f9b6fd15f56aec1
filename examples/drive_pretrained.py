"""The trained driver of this package on ``CarlaTD3/Driving-v0``, in CARLA or carla-lite.

Start a simulator (``carla-lite``), then ``python examples/drive_pretrained.py``, with another seed as
``SEED=3 python examples/drive_pretrained.py``. It drives where CARLA_HOST and CARLA_PORT say.
"""

import os
import sys

import gymnasium
import torch

from carla_td3 import pretrained

torch.set_num_threads(1)  # more gain nothing at one observation, and take the simulator's cores
driver = pretrained.load("traffic")
env = gymnasium.make("CarlaTD3/Driving-v0", config=driver.config.environment)
observation, info = env.reset(seed=int(os.environ.get("SEED", "0")))
ended = False
while not ended:
    observation, reward, terminated, truncated, info = env.step(driver.act(observation))
    ended = terminated or truncated
print(f"{info['end']}: {info['distance_m']:.0f} m, {100 * info['route_completion']:.0f} % of the route")
env.close()
sys.stdout.flush()
os._exit(0)  # the client's Traffic Manager may abort a process that ends by itself
