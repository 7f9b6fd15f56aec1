"""The command line: options, and what each command does in which order."""
