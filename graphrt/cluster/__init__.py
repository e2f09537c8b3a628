"""Who runs partitions where. `local.py` is the master of one process: no RPC."""
