"""Road networks: OpenDRIVE converted to lanes, markings, ground and spawn points. Knows no traffic and no picture."""
