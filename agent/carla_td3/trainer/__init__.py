"""The process that learns: its loop, the learner, checkpoints, requests, and the supervision of the collector.

Never imports ``carla``: the client library can abort its process, and this one must live.
"""
