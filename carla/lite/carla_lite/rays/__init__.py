"""Ray casting, shared by lidar, radar, the obstacle detector and ``world.cast_ray``."""
