"""Lines on the nodes of a Ray cluster for ``status`` and report.

Doesn't import Ray: only the agent's driver connects to the cluster.
"""
