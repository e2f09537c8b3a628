"""`graphrt inspect`: what a model file holds."""

from __future__ import annotations

import argparse
import re
import sys
from collections import Counter
from collections.abc import Sequence
from typing import Any

from graphrt.core.dtypes import as_dtype
from graphrt.core.shapes import TensorShape
from graphrt.tools.explain import UsageError, read_model

_INPUTS = frozenset(("Placeholder", "PlaceholderWithDefault", "PlaceholderV2"))
_VARIABLES = frozenset(("Variable", "VariableV2", "VarHandleOp"))
_MOST_TYPES = 12


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; gives the exit status."""
    asked = _parser().parse_args(arguments)
    try:
        graph_def, signatures = read_model(asked.model)
        lines = node_lines(graph_def, _pattern(asked.nodes)) if asked.nodes is not None else [
            *summary(graph_def), *signature_lines(signatures)]
    except (UsageError, OSError) as error:
        print(f"graphrt inspect: {error}", file=sys.stderr)
        return 2
    print("\n".join(lines))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="graphrt inspect",
        description="What a model file holds: its inputs, outputs, variables, ops and signatures; with "
                    "--nodes, the nodes themselves.")
    parser.add_argument("model",
                        help="a GraphDef (.pb, .pbtxt), a MetaGraphDef (.meta) or a SavedModel folder")
    parser.add_argument("--nodes", nargs="?", const="", metavar="PATTERN",
                        help="list the nodes whose name or type matches this regular expression; all without")
    return parser


def _pattern(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        raise UsageError(f"--nodes {text!r} is not a regular expression: {error}") from None


def summary(graph_def: Any) -> list[str]:
    """Inputs, variables, ends and op types of a GraphDef."""
    nodes = list(graph_def.node)
    used = {_source(i) for n in nodes for i in n.input}
    inputs = [n for n in nodes if n.op in _INPUTS]
    variables = [n for n in nodes if n.op in _VARIABLES]
    ends = [n for n in nodes if n.name not in used and n.op != "NoOp"]
    producer = graph_def.versions.producer
    lines = [f"{_count(len(nodes), 'node')}, {_count(len(graph_def.library.function), 'function')}"
             + (f", made by a producer of version {producer}" if producer else "")]
    for heading, some in (("Inputs", inputs), ("Variables", variables),
                          ("Ends (nothing takes their outputs)", ends)):
        if some:
            width = max(len(n.name) for n in some)
            lines += ["", f"{heading}: {len(some)}"]
            lines += [f"  {n.name:<{width}}  {n.op} {typed(n)}".rstrip() for n in some]
    devices = Counter(n.device for n in nodes if n.device)
    if devices:
        lines += ["", "Devices asked for:"]
        lines += [f"  {_count(count, 'node'):>12}  {device}" for device, count in devices.most_common()]
    kinds = Counter(n.op for n in nodes).most_common()
    more = f", and {len(kinds) - _MOST_TYPES} more" if len(kinds) > _MOST_TYPES else ""
    lines += ["", "Op types: " + ", ".join(f"{count} {op}" for op, count in kinds[:_MOST_TYPES]) + more]
    return lines


def typed(node: Any) -> str:
    """'float32 [?, 784]', as far as the node's attrs say."""
    parts = []
    if "dtype" in node.attr and node.attr["dtype"].type:
        parts.append(as_dtype(node.attr["dtype"].type).name)
    if "shape" in node.attr and node.attr["shape"].HasField("shape"):
        parts.append(str(TensorShape(node.attr["shape"].shape)))
    return " ".join(parts)


def signature_lines(signatures: dict[str, Any]) -> list[str]:
    """The signatures of a SavedModel: what is fed and fetched under which key."""
    lines: list[str] = []
    for key, signature in sorted(signatures.items()):
        lines += ["", f"Signature {key}" + (f" ({signature.method_name})" if signature.method_name else "")]
        for word, tensors in (("feed", signature.inputs), ("fetch", signature.outputs)):
            for alias, info in sorted(tensors.items()):
                dtype, shape = as_dtype(info.dtype).name, TensorShape(info.tensor_shape)
                lines.append(f"  {word:<5} {alias}: {info.name} {dtype} {shape}")
    return lines


def node_lines(graph_def: Any, pattern: re.Pattern[str]) -> list[str]:
    """A line a node that matches: name, type, inputs, device; those of functions behind the function's name.

    Raises:
      UsageError: none matches.
    """
    functions = graph_def.library.function
    places = [("", graph_def.node), *((f"{f.signature.name}: ", f.node_def) for f in functions)]
    lines = [" ".join(filter(None, (f"{prefix}{n.name} = {n.op}({', '.join(n.input)})", typed(n), n.device)))
             for prefix, nodes in places for n in nodes if pattern.search(n.name) or pattern.search(n.op)]
    if not lines:
        raise UsageError(f"no node's name or type matches {pattern.pattern!r}")
    return lines


def _source(text: str) -> str:
    return text.removeprefix("^").partition(":")[0]


def _count(n: int, what: str) -> str:
    return f"{n:,} {what}{'' if n == 1 else 's'}"
