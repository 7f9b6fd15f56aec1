"""The actors of a world: vehicles, walkers, signs and lights, triggers, sensors; each owns its state."""
