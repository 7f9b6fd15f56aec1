"""What must be right about a machine before a run: checks, each with what it found and what to do."""
