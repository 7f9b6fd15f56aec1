"""Which programs run, and where: the interface to them, and its two implementations."""
