"""Reports of a running training: heartbeat, events, metrics, the progress line."""
