"""Collectors on other machines, by Ray: the driver beside the learner, and what holds a collector on its node."""
