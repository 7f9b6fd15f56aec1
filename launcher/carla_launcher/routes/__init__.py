"""An evaluation whose items are given out one by one: each is driven until it has a result, or is named and left."""
