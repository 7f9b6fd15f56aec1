"""The collector: the process that touches the ``carla`` client, and the learner's view of it."""
