"""The environment behind ``gymnasium.make``: where its simulator is, and the pictures that it renders."""
