"""How well a driver drives: drivers, held-out routes, figures, video, and the runner that puts them together."""
