"""The generated towns: plans as data, converted to OpenDRIVE text. Imports nothing else of carla-lite."""
