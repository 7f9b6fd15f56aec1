"""The process that drives: rollout, warm-up, evaluations on order. Only this process uses the ``carla`` client in
training.
"""
