"""The runtime of the Compose stack: ``docker compose`` starts containers, the Docker SDK observes them."""
