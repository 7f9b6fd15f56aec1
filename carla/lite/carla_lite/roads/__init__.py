"""Road networks: OpenDRIVE read into lanes, markings, ground and spawn points. Knows no traffic and no picture."""
