"""The server's window, for ``--view``: the spectator's camera and the town from above, in a browser on this machine.

It is a separate process and an ordinary client: while there is a viewer it listens to the world's stream, keeps a copy
of the scene and the actors, and draws them itself. So a tick neither renders for it nor waits for it, and it moves the
spectator like any client. The server imports only ``launch``.
"""
