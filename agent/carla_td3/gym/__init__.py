"""The environment as ``gymnasium.make`` gives it: where its simulator is, and the pictures that it renders."""
