"""The live page: a run in a browser on this machine, read from the run's files, with a few buttons.

A process of its own beside the launcher (``live_page`` starts it and imports nothing of it), for what it serves and
draws with is larger than the launcher. Whoever has the token may look and press; a page of another site can do neither.
"""
