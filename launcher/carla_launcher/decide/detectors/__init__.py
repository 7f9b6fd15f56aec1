"""From what was seen to causes: pure functions and windows over recorded series, no clock, no file, no process."""
