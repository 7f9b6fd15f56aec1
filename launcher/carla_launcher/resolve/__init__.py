"""From the user's options and this machine to a plan and to what a run is started with.

Asks Docker and the agent, and reads the files of earlier runs; writes nothing and starts no program of the run.
"""
