"""The process that drives: rollout, warm-up, evaluations on order. The only one that touches the ``carla`` client."""
