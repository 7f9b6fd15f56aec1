"""The generated towns: plans in data, made into OpenDRIVE text. Imports nothing of the rest."""
