"""Memory as pools with owners: the model, and the readers of VRAM, RAM and disk. Decides nothing."""
