"""What is done about what was seen: detectors find, the ladder offers, one search chooses, policy decides. Pure.

No clock, no file, no process. Owns what is wrong, what fits, which steps are taken and taken back, and how often what
failed is started again. Carries nothing out: that is ``act``'s. What the agent would take is handed in, never
asked for.
"""
