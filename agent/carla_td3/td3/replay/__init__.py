"""The ring of transitions on disk, what a frame looks like there, and how a ring is resized. Imports no network."""
