"""What rays meet: lidar, radar, the obstacle detector and ``world.cast_ray`` ask here, all of them the same caster."""
