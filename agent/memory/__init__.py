"""What the agent does so that memory suffices, and when it doesn't."""
