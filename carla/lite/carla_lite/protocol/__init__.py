"""Transport and binary formats: TCP, msgpack-rpc, streams and the bytes of each structure. Knows no world."""
