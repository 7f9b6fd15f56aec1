"""What the launcher sees: simulator, agent and memory, once a second. Decides nothing."""
