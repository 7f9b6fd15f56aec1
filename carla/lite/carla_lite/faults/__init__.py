"""Faults on purpose: what CARLA does wrong, done by this server when it is asked to. Touches world and server only
through their hooks, and none of these is set unless a fault or the control port was asked for."""
