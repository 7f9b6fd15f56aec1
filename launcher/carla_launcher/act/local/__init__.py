"""The runtime of local processes, each under a shim that outlives the launcher."""
