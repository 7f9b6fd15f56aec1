"""Faults on purpose: the server does, on request, what CARLA does wrong.

Touches world and server only through their hooks, which are unset unless a fault or the control port was requested.
"""
