"""The `graphrt` command. Read `main.py` first: its table names the commands, each in a file of its own."""
