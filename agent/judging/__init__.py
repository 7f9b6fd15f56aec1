"""How well a driver drives: the baselines beside it, evaluation on held-out routes, the table, the video."""
