"""CARLA's recorder: records a world to a file in CARLA's format, replays a file, and describes it in text.

Owns the file format (``layout``, ``reading``, ``writing``), the folder of the files, what is recorded, how a recording
moves actors, and the texts of the queries; the world and the RPC methods use ``studio``. Knows no socket, and of the
world only the interface in ``stage``.
"""
