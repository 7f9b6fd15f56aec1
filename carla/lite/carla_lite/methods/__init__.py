"""The calls a client may make, one decorated function each. ``table`` finds and answers them."""
