"""The algorithm: networks, the update, replay. Knows no simulator."""
