"""Decisions: detectors find what is wrong, the ladder offers steps, one search chooses, policy decides. Pure.

Uses no clock, file or process. Decides what fits, which steps are taken and restored, and how often a failed program
is restarted. ``act`` carries the decisions out. The agent's sizes are passed in.
"""
