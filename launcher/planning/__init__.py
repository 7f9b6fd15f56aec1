"""What fits: what each would take, the steps that would free some, and where a run can start."""
