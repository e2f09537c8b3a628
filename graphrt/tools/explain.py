"""`graphrt explain`: what the compiler would make of a model on given devices.

    graphrt explain model.pb --fetch softmax --feed x --html step.html
    graphrt explain train.meta --fetch loss --target train_op --feed x --feed y \\
        --device /job:worker/task:0/cpu:0 --device /job:ps/task:0/cpu:0

Nothing runs: devices are described by their names and need not be there.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from graphrt.compiler.explanation import Explanation, explain
from graphrt.compiler.options import CompileOptions
from graphrt.compiler.pipeline import compile_step
from graphrt.compiler.step_graph import Signature
from graphrt.core import device_names
from graphrt.core.errors import OpError
from graphrt.core.graph import Graph
from graphrt.core.graph_def import import_graph_def
from graphrt.runtime.devices import AcceleratorDevice, Device

_LOCAL = device_names.parse("/job:localhost/replica:0/task:0")


class UsageError(Exception):
    """What the user gave does not fit; the text says what would."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; gives the exit status."""
    arguments = _parser().parse_args(argv)
    try:
        if arguments.plan and arguments.by_task:
            raise UsageError("--plan shows what a device runs: leave out --by-task")
        explanation = run(arguments)
        plans = plan_lines(explanation, arguments) if arguments.plan else []
        if arguments.html:
            Path(arguments.html).write_text(explanation.html(), encoding="utf-8")
        if arguments.svg:
            Path(arguments.svg).write_text(explanation.svg(), encoding="utf-8")
    except (UsageError, OpError, OSError) as error:
        print(f"graphrt explain: {error}", file=sys.stderr)
        return 2
    print(explanation.text(arguments.full), end="")
    print("\n".join(plans), end="\n" if plans else "")
    for path in (arguments.html, arguments.svg):
        if path:
            print(f"\nPicture: {os.path.abspath(path)}")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="graphrt explain",
                                     description="What the compiler makes of a model: what each pass does, "
                                                 "where nodes are placed and why, and what crosses between "
                                                 "devices.")
    parser.add_argument("model",
                        help="a GraphDef (.pb, .pbtxt), a MetaGraphDef (.meta) or a SavedModel folder")
    parser.add_argument("--fetch", action="append", default=[], metavar="NAME",
                        help="a tensor to fetch ('y' or 'y:0'), or an operation to run; may be repeated")
    parser.add_argument("--target", action="append", default=[], metavar="NAME",
                        help="an operation to run; may be repeated")
    parser.add_argument("--feed", action="append", default=[], metavar="NAME",
                        help="a tensor that is fed; may be repeated")
    parser.add_argument("--signature", metavar="KEY",
                        help="take feeds and fetches from this signature of a SavedModel")
    parser.add_argument("--device", action="append", default=[], metavar="DEVICE",
                        help="a device to place on, as cpu:1 or /job:ps/task:0/gpu:0; may be repeated; the "
                             "first CPU is the client's. Default: cpu:0")
    parser.add_argument("--soft-placement", action="store_true",
                        help="as allow_soft_placement in ConfigProto")
    parser.add_argument("--by-task", action="store_true", help="cut one partition a task, as a master does")
    parser.add_argument("--plain", action="store_true", help="without the optimising passes")
    parser.add_argument("--full", action="store_true", help="list every node, not the first few")
    parser.add_argument("--plan", action="store_true", help="and the Python that each partition becomes")
    parser.add_argument("--html", metavar="FILE", help="write the page with the picture")
    parser.add_argument("--svg", metavar="FILE", help="write the picture alone")
    return parser


def run(arguments: argparse.Namespace) -> Explanation:
    """The explanation that the arguments ask for.

    Raises:
      UsageError: the model, a name or a device is not what it has to be.
      OpError: the step cannot be compiled.
    """
    graph_def, signatures = read_model(arguments.model)
    graph = Graph()
    with graph.as_default():
        try:
            import_graph_def(graph_def, name="")
        except (ValueError, TypeError) as error:
            raise UsageError(f"{arguments.model}: {error}") from None
    for op in graph.get_operations():
        op.location = None  # the lines that built the model are not known; this command's would mislead
    signature = _signature(arguments, graph, signatures)
    devices = _devices(arguments)
    client = next((d.name for d in devices if d.type == "CPU"), None)
    if client is None:
        raise UsageError("feeds and fetches need a CPU: add one with --device cpu:0")
    options = CompileOptions(client, soft_placement=arguments.soft_placement, by_task=arguments.by_task)
    if arguments.plain:
        options.fold = options.simplify = options.share = False
    return explain(compile_step(graph, signature, devices, options))


def plan_lines(explanation: Explanation, arguments: argparse.Namespace) -> list[str]:
    """The Python of each partition's plan, and what the numbers in it stand for.

    Raises:
      OpError: a kernel cannot be bound.
    """
    from graphrt.core.resources import Containers
    from graphrt.runtime.plan import Plan
    from graphrt.runtime.worker_session import WorkerSession

    session = WorkerSession(_devices(arguments), Containers())
    partitions = explanation.compiled.partitions
    lines: list[str] = []
    for partition in partitions:
        plan = Plan(partition, session, len(partitions) == 1)
        lines += ["", f"Plan of {partition.device}", *plan.source().rstrip().splitlines(), ""]
        named = sorted(plan.layout.number.items(), key=lambda item: item[1])
        lines += [f"  {i:>4}  {n.type} {n.name}" for n, i in named]
    return lines


# -- the model ---------------------------------------------------------------------------------------------


def read_model(path: str) -> tuple[Any, dict[str, Any]]:
    """The GraphDef in a file or folder, and the signatures of a SavedModel or MetaGraphDef by key.

    Raises:
      UsageError: it is none of the forms that can be read.
    """
    from graphrt.protos import graph_pb2, meta_graph_pb2, saved_model_pb2
    file = Path(path)
    if file.is_dir():
        found = [f for f in (file / "saved_model.pb", file / "saved_model.pbtxt") if f.exists()]
        if not found:
            raise UsageError(f"{path} is a folder without saved_model.pb")
        file = found[0]
    if not file.exists():
        raise UsageError(f"there is no file {path}")
    if file.name.startswith("saved_model."):
        meta_graphs = _parse(file, saved_model_pb2.SavedModel()).meta_graphs
        if not meta_graphs:
            raise UsageError(f"{path} has no MetaGraphDef")
        return meta_graphs[0].graph_def, dict(meta_graphs[0].signature_def)
    if file.suffix == ".meta":
        meta_graph = _parse(file, meta_graph_pb2.MetaGraphDef())
        return meta_graph.graph_def, dict(meta_graph.signature_def)
    return _parse(file, graph_pb2.GraphDef()), {}


def _parse(file: Path, message: Any) -> Any:
    from google.protobuf import text_format
    from google.protobuf.message import DecodeError
    try:
        if file.suffix in (".pbtxt", ".txt"):
            text_format.Parse(file.read_text(encoding="utf-8"), message)
        else:
            message.ParseFromString(file.read_bytes())
    except (DecodeError, text_format.ParseError, UnicodeDecodeError) as error:
        raise UsageError(f"{file} is not a {message.DESCRIPTOR.name}: {error}") from None
    return message


def _signature(arguments: argparse.Namespace, graph: Graph, signatures: dict[str, Any]) -> Signature:
    fetches, feeds = list(arguments.fetch), list(arguments.feed)
    if arguments.signature is not None:
        chosen = signatures.get(arguments.signature)
        if chosen is None:
            raise UsageError(f"{arguments.model} has no signature '{arguments.signature}'"
                             + (f": it has {', '.join(sorted(signatures))}" if signatures else ""))
        fetches += [chosen.outputs[key].name for key in sorted(chosen.outputs)]
        feeds += [chosen.inputs[key].name for key in sorted(chosen.inputs)]
    tensors: list[str] = []
    targets = list(arguments.target)
    for name in fetches:
        element = _element(graph, name)
        if ":" in name or element.outputs:
            tensors.append(name if ":" in name else f"{name}:0")
        else:
            targets.append(name)
    if not tensors and not targets:
        ends = [op.name for op in graph.get_operations() if not any(t._consumers for t in op.outputs)][-8:]
        choices = [f"--signature {key}" for key in sorted(signatures)]
        choices += [f"--fetch {name}" for name in reversed(ends)]
        raise UsageError(f"nothing is asked for: give --fetch or --target. Of {arguments.model}: "
                         f"{', '.join(choices)}")
    for name in [*feeds, *targets]:
        _element(graph, name)
    fed = [name if ":" in name else f"{name}:0" for name in feeds]
    return Signature(tuple(dict.fromkeys(fed)), tuple(dict.fromkeys(tensors)), tuple(dict.fromkeys(targets)))


def _element(graph: Graph, name: str) -> Any:
    try:
        return graph.as_graph_element(name)
    except (KeyError, ValueError) as error:
        raise UsageError(str(error.args[0])) from None


# -- devices -----------------------------------------------------------------------------------------------


def _devices(arguments: argparse.Namespace) -> list[Device]:
    return [_device(name) for name in arguments.device or ["cpu:0"]]


def _device(text: str) -> Device:
    name = text if text.startswith("/") else f"/{text}"
    try:
        parts = device_names.parse(name).over(_LOCAL)
    except ValueError as error:
        raise UsageError(str(error)) from None
    if parts.type is None or parts.index is None:
        raise UsageError(f"--device {text}: a device has a type and a number, as in {name.rstrip('/')}/cpu:0")
    kind = Device if parts.type == "CPU" else AcceleratorDevice
    made = kind(str(parts), parts.index)
    made.incarnation = 0  # nothing runs there
    return made


if __name__ == "__main__":
    sys.exit(main())
