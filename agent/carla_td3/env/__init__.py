"""The driving environment: everything that touches the ``carla`` client.

Owns connection, sensors, routes, reward and the gymnasium environment. Never imports ``torch`` or the networks:
any learner can use it. Importing it registers ``CarlaTD3/Driving-v0``; the client loads on first use.
"""

from __future__ import annotations

import gymnasium

ENVIRONMENT_ID = "CarlaTD3/Driving-v0"

if ENVIRONMENT_ID not in gymnasium.registry:
    gymnasium.register(id=ENVIRONMENT_ID, entry_point="carla_td3.gym.driving:RegisteredEnv")
