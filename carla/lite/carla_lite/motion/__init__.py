"""The motion of vehicles and their collisions. Scalar arithmetic: equal inputs give equal trajectories, bit for bit."""
