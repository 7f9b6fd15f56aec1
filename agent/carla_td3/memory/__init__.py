"""Memory: what an agent will take, whether that fits (before a start), and what is done when it ran out (in an update).

Knows the shapes of networks and replay as numbers; never networks, the loop or the files of a run's events.
"""
