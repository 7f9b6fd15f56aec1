"""How vehicles move and what they hit. Scalar arithmetic: the same inputs give the same trajectory bit for bit."""
