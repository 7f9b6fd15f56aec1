"""The runtime of the Compose stack: ``docker compose`` acts, the Docker SDK watches."""
