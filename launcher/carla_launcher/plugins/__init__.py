"""Optional parts. Each is found by its entry point, and the launcher's core imports none of them."""
