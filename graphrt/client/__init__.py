"""What runs a graph: `session.py` first, then `fetches.py` and `feeds.py` (how its arguments become a
signature)."""
