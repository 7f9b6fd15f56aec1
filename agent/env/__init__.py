"""The gymnasium environment: the only part of the agent that talks to the ``carla`` client."""
