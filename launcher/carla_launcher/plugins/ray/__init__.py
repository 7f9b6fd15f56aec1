"""A run whose collectors drive on a Ray cluster's nodes: what ``status`` and the report show of them.

Imports no Ray: only the agent's driver speaks to the cluster.
"""
