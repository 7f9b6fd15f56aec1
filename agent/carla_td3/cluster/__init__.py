"""Collectors on other machines, by Ray: the driver beside the learner, and the code on a collector's node."""
