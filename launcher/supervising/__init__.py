"""The state machine of one run, and what it remembers: decisions in, actions out; everything it touches is injected."""
