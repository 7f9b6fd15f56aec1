"""What a run tells people and programs while it runs: heartbeat, events, metrics, the progress line."""
