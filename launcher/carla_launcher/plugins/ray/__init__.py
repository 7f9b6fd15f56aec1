"""The nodes of a Ray cluster: what ``--cluster`` means, and lines for ``status`` and report.

Doesn't import Ray: only the agent's driver connects to the cluster.
"""
