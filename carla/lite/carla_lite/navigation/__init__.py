"""The navigation mesh on which a client's walkers find their paths. Knows roads; never touches walkers or the wire."""
