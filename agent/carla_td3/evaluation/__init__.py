"""Evaluation of drivers: drivers, held-out routes, figures, video, and the runner that puts them together."""
