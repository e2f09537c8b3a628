"""`graphrt coverage`: the ops that graphrt runs, and what of a model it does not."""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import graphrt.ops  # noqa: F401  registers every op
from graphrt.core.registry import OPS, OpDef
from graphrt.tools.explain import UsageError, read_model

INCOMPLETE = 1  # exit status: the model has ops that are not there


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; gives the exit status."""
    asked = _parser().parse_args(arguments)
    if asked.model is None:
        print(json.dumps(sorted(OPS)) if asked.json else "\n".join(registered()))
        return 0
    try:
        needed = op_counts(read_model(asked.model)[0])
    except (UsageError, OSError) as error:
        print(f"graphrt coverage: {error}", file=sys.stderr)
        return 2
    absent = {name: count for name, count in needed.items() if name not in OPS}
    if asked.json:
        print(json.dumps({"needed": dict(sorted(needed.items())), "missing": sorted(absent)}))
    else:
        print("\n".join(model_report(asked.model, needed, absent)))
    return INCOMPLETE if absent else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="graphrt coverage", formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Without a model: the ops that graphrt runs. With one: those of its ops that graphrt\n"
                    "does not run, also inside of functions; the exit status is 1 where there are some.")
    parser.add_argument("model", nargs="?",
                        help="a GraphDef (.pb, .pbtxt), a MetaGraphDef (.meta) or a SavedModel folder")
    parser.add_argument("--json", action="store_true", help="for programs")
    return parser


def registered() -> list[str]:
    """The table of what is there, a family of ops (a module of graphrt.ops) a paragraph."""
    families: dict[str, list[OpDef]] = {}
    for name in sorted(OPS):
        families.setdefault(type(OPS[name].impl).__module__.rpartition(".")[2], []).append(OPS[name])
    with_gradient = sum(o.has_gradient for o in OPS.values())
    on_gpu = sum(not o.cpu_only for o in OPS.values())
    lines = [f"{len(OPS):,} ops, {with_gradient:,} of them with a gradient, {on_gpu:,} with a GPU kernel."]
    for family, members in sorted(families.items()):
        lines += ["", f"{family} ({len(members)})", *_columns(o.name for o in members)]
    return lines


def op_counts(graph_def: Any) -> Counter[str]:
    """How often each op type is in a GraphDef and its functions; calls of its own functions do not count."""
    nodes = [*graph_def.node, *(n for f in graph_def.library.function for n in f.node_def)]
    functions = {f.signature.name for f in graph_def.library.function}
    return Counter(n.op for n in nodes if n.op not in functions)


def model_report(model: str, needed: Counter[str], absent: dict[str, int]) -> list[str]:
    """What to say of a model."""
    lines = [f"{model}: {needed.total():,} nodes of {len(needed):,} op types."]
    if not absent:
        return [*lines, "graphrt runs all of them."]
    lines += [f"graphrt has no {'op' if len(absent) == 1 else 'ops'} of {len(absent)} of these types:"]
    ranked = sorted(absent.items(), key=lambda item: (-item[1], item[0]))
    return [*lines, *(f"  {name:<40} {count:>6,} x" for name, count in ranked)]


def _columns(names: Iterable[str], width: int = 108) -> list[str]:
    lines = [" "]
    for name in names:
        if len(lines[-1]) + 1 + len(name) > width:
            lines.append(" ")
        lines[-1] += f" {name}"
    return lines
