"""The checks of ``doctor``: each returns what it found, and advice."""
