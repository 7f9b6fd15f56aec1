"""What a run can do without: each is found by its entry point, and the launcher's core imports none of them."""
