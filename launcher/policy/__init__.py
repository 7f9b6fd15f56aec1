"""From causes to what is done: pure functions over plain data. Owns no clock, no process, no file."""
