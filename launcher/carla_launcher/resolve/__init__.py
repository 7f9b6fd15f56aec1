"""Resolves the user's options on this machine into a plan and the settings of a run.

Queries Docker and the agent, and reads the files of earlier runs. Writes nothing and starts no program of the run.
"""
