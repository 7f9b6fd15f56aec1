"""Transport and layouts: TCP, msgpack-rpc, streams and the bytes of each structure. Knows no world."""
