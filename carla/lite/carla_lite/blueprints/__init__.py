"""What can be spawned: CARLA's blueprints with their attributes; a row a vehicle, with its source."""
