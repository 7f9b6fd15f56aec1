"""CARLA's recorder: what a world does, written to a file of CARLA's own format, replayed from one, and told in words.

Owns the file format (``layout``, ``reading``, ``writing``), the folder that holds the files, what is recorded, how a
recording moves actors, and the texts of the queries; ``studio`` is what the world and the RPC methods hold. Knows no
socket, and of the world what ``stage`` names.
"""
