"""Memory: how much an agent will need, whether it fits (before a start), and what to do if it runs out (in an update).

Knows the shapes of networks and replay as numbers; never networks, the loop or the files of a run's events.
"""
