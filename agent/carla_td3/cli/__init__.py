"""The command line: its options, and the steps of each command."""
