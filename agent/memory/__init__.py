"""Memory: what the allocator is told, what a configuration needs, what is free, and whether the one fits the other."""
