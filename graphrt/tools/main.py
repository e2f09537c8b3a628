"""The `graphrt` command: picks the subcommand and hands it the other arguments.

A subcommand is a module of this folder with `main(arguments) -> exit status`; it is imported when it is asked
for.
"""

from __future__ import annotations

import difflib
import importlib
import os
import sys
from collections.abc import Sequence

# Heading -> command -> what it is for. The module of a command has its name.
COMMANDS: dict[str, dict[str, str]] = {
    "Look at a model": {
        "explain": "what the compiler makes of a step: each pass, the placement, every edge that is cut",
        "inspect": "what a model file holds: inputs, outputs, variables, operations",
        "coverage": "which ops graphrt runs, and which of a model's it does not",
    },
    "Look at a run": {
        "trace": "the statistics of a traced step as a table and as a Chrome trace",
    },
    "Run a cluster": {
        "serve": "one server of a cluster: a parameter server, or a worker for remote sessions",
        "launch": "a training script as a local cluster of parameter servers and workers",
    },
}
_EXAMPLES = (
    ("graphrt explain model.pb --fetch loss --html step.html", "a picture of the partitioned step"),
    ("graphrt launch --ps 1 --workers 2 train.py", "three processes, one cluster"),
)
INTERRUPTED = 130  # what shells say of a command that Ctrl-C ended


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line (`sys.argv` where None); gives the exit status: 2 for a wrong command line."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        return _run(given)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:  # as in `graphrt coverage | head`: who reads has had enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _run(given: list[str]) -> int:
    if not given or given[0] in ("-h", "--help", "help") and len(given) == 1:
        print(overview())
        return 0
    if given[0] in ("-V", "--version", "version"):
        from graphrt import __version__
        print(f"graphrt {__version__}")
        return 0
    command, rest = (given[1], ["--help"]) if given[0] == "help" else (given[0], given[1:])
    if command not in known_commands():
        print(unknown(command), file=sys.stderr)
        return 2
    try:
        return importlib.import_module(f"graphrt.tools.{command}").main(rest)
    except SystemExit as ended:  # argparse: --help, or arguments that do not fit
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    finally:
        sys.stdout.flush()


def known_commands() -> dict[str, str]:
    """Command -> what it is for."""
    return {name: purpose for commands in COMMANDS.values() for name, purpose in commands.items()}


def overview() -> str:
    """The text of `graphrt --help`."""
    lines = ["graphrt runs TensorFlow 1's graphs and sessions; this command looks at models and runs",
             "clusters.", "", "usage: graphrt COMMAND [ARGUMENT...]", "       graphrt COMMAND --help"]
    for heading, commands in COMMANDS.items():
        lines += ["", f"{heading}:", *(f"  {name:<10} {purpose}" for name, purpose in commands.items())]
    width = max(len(line) for line, _ in _EXAMPLES)
    lines += ["", "Examples:", *(f"  {line:<{width}}   {purpose}" for line, purpose in _EXAMPLES)]
    lines += ["", "  -h, --help     this text", "  -V, --version  the version"]
    return "\n".join(lines)


def unknown(command: str) -> str:
    """What to say to a command that is not there."""
    kind = "option" if command.startswith("-") else "command"
    known = list(known_commands()) if kind == "command" else ["--help", "--version"]
    near = difflib.get_close_matches(command, known, n=1, cutoff=0.5)
    hint = f"did you mean '{near[0]}'?" if near else f"there are {', '.join(known)}"
    return f"graphrt: there is no {kind} '{command}': {hint}\nTry 'graphrt --help'."


if __name__ == "__main__":
    sys.exit(main())
