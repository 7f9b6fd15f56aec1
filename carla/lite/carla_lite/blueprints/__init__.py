"""The blueprint library: CARLA's blueprints with their attributes; one row per vehicle, with its source."""
