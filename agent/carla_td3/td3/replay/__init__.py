"""The ring of transitions on disk: its frames, its rows, and how it is resized. Imports no network."""
