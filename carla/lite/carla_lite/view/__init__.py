"""The server's window, for ``--view``: the spectator's camera and the town from above, in a browser on this machine.

A process of its own that is one more client: it listens to the world's stream while somebody looks, keeps a copy of
what stands and moves, and draws that itself. So a tick neither renders for it nor waits for it, and the spectator moves
as by any client. The server imports none of it but ``launch``.
"""
