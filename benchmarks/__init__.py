"""graphrt beside TensorFlow, on the same programs: `python -m benchmarks` (or `make bench`). See
__main__.py."""
