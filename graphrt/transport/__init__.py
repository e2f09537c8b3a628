"""Messages between tasks. Read `interface.py` first: what a peer and a service are.

in_process.py   direct calls within a process: what tests use where no socket is meant
grpc_peer.py    the client's side of gRPC: calls, one channel an address
grpc_server.py  the server's side
link.py         one stream of frames between two graphrt processes, as a pure machine
link_io.py      the shell around it that moves bytes
tensors.py      tensors as bytes, with as few copies as can be
"""
