"""What stands and moves in a world: vehicles, walkers, signs and lights, triggers, sensors; each with its own state."""
