"""The live page: a run in a browser on this machine, read from the run's files, with a few buttons.

A child process of the launcher (``live_page`` starts it), since its libraries are larger than the launcher. Anyone with
the token can view the page and use the buttons; pages of other sites can do neither.
"""
