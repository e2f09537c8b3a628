"""Explanation: what the compiler made of a step, as text and as one self-contained page with a picture.

Read `picture.py` for the picture, `page.py` for the page around it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from graphrt.compiler.step_graph import Node, PassRecord
from graphrt.core.dtypes import DType
from graphrt.core.shapes import TensorShape

if TYPE_CHECKING:
    from graphrt.compiler.pipeline import CompiledStep

# Names that a line of the short text lists, before it only counts.
_LISTED = 6
_SENDS = frozenset(("_Send", "_HostSend"))


@dataclass(frozen=True)
class CutEdge:
    """A `_Send` and its `_Recv`.

    Attributes:
      source: the node that makes the tensor; output: which of its outputs, None for a control edge.
      shape: as far as it is known; size: bytes a step, None where the shape is not known.
      key: where the two meet in the rendezvous.
      takers: names of the nodes that take it on the other side.
    """

    source: str
    output: int | None
    dtype: DType
    shape: TensorShape
    size: int | None
    from_device: str
    to_device: str
    key: str
    takers: tuple[str, ...]

    @property
    def tensor(self) -> str:
        return f"^{self.source}" if self.output is None else f"{self.source}:{self.output}"


class Explanation:
    """What happened to a step on its way to the devices.

    Attributes:
      compiled: the step.
      records: what each pass did.
      cut_edges: what crosses between partitions, in order.
    """

    def __init__(self, compiled: CompiledStep) -> None:
        self.compiled = compiled
        self.records: list[PassRecord] = compiled.records
        self.cut_edges: list[CutEdge] = list(_cut_edges(compiled))

    def text(self, full: bool = False) -> str:
        """The report; `full` lists every node that a pass touched, not the first few."""
        return "\n".join([*self._head(), "", *self._passes(full), "", *self._placement(full), "",
                          *self._partitions(), "", *self._edges()]) + "\n"

    def svg(self) -> str:
        """The picture alone: nodes by device, edges that cross devices drawn heavily."""
        from graphrt.compiler.picture import draw
        return draw(self)

    def html(self, title: str | None = None) -> str:
        """One page with the picture and the tables; it needs nothing else."""
        from graphrt.compiler.page import page
        return page(self, title)

    def __str__(self) -> str:
        return self.text()

    # -- text ----------------------------------------------------------------------------------------------

    @property
    def title(self) -> str:
        signature = self.compiled.signature
        parts = [_named("fetch", signature.fetches), _named("run", signature.targets),
                 _named("feed", signature.feeds)]
        return "; ".join(p for p in parts if p) or "an empty step"

    def summary(self) -> str:
        """One sentence with the figures."""
        first, compiled = self.records[0], self.compiled
        tensors = sum(e.output is not None for e in self.cut_edges)
        controls = len(self.cut_edges) - tensors
        crossing = "nothing crosses" if not self.cut_edges else (f"{_count(tensors, 'tensor')} and "
                                                                 f"{_count(controls, 'control edge')} cross, "
                                                                 f"{self.crossing_bytes()} a step")
        return (f"{first.nodes_before:,} nodes before, {len(compiled.step):,} in the step, "
                f"{_count(len(compiled.partitions), 'partition')}; {crossing}; "
                f"compiled in {sum(r.seconds for r in self.records) * 1e3:,.1f} ms")

    def crossing_bytes(self) -> str:
        """The bytes that cross in a step, as far as they are known."""
        known = [e.size for e in self.cut_edges if e.size is not None]
        unknown = len(self.cut_edges) - len(known)
        text = human_bytes(sum(known))
        return text if not unknown else f"{text} and {_count(unknown, 'tensor')} of unknown size"

    def _head(self) -> list[str]:
        return [f"Step: {self.title}", f"  {self.summary()}"]

    def _passes(self, full: bool) -> list[str]:
        lines = ["Passes"]
        for record in self.records:
            change = f"{record.nodes_after:,}"
            if record.nodes_before != record.nodes_after:
                change = f"{record.nodes_before:,} -> {change}"
            lines.append(f"  {record.name:<22}{change:>18}  {record.seconds * 1e3:>8.2f} ms  "
                         f"{record.summary}")
            if record.name != "place" and record.name != "partition":
                lines += _details(record, full)
        return lines

    def _placement(self, full: bool) -> list[str]:
        lines = ["Placement"]
        for device, rules in self.placement().items():
            lines.append(f"  {device}: {_count(sum(map(len, rules.values())), 'node')}")
            for rule, names in rules.items():
                lines.append(f"    {len(names):>5}  {rule}: {_some(names, full)}")
        return lines if len(lines) > 1 else []

    def placement(self) -> dict[str, dict[str, list[str]]]:
        """device -> rule -> the nodes that it put there."""
        made: dict[str, dict[str, list[str]]] = {}
        for record in self.records:
            if record.name == "place":
                for name, text in record.details:
                    device, _, rule = text.partition(": ")
                    made.setdefault(device, {}).setdefault(rule, []).append(name)
        return {d: dict(sorted(made[d].items(), key=lambda item: (-len(item[1]), item[0])))
                for d in sorted(made)}

    def _partitions(self) -> list[str]:
        lines = ["Partitions"]
        for part in self.compiled.partitions:
            kinds: dict[str, int] = {}
            for node in part.graph.nodes:
                kinds[node.type] = kinds.get(node.type, 0) + 1
            most = sorted(kinds.items(), key=lambda item: (-item[1], item[0]))
            shown = ", ".join(f"{n} {kind}" for kind, n in most[:8]) + (", ..." if len(most) > 8 else "")
            lines.append(f"  {part.device}: {_count(len(part.graph), 'node')} ({shown})")
        return lines

    def _edges(self) -> list[str]:
        lines = [f"Cut edges: {len(self.cut_edges)}"]
        for edge in self.cut_edges:
            lines.append(f"  {edge.tensor}  {described(edge)}")
            lines.append(f"    {edge.from_device} -> {edge.to_device}, for {_some(list(edge.takers), False)}")
            lines.append(f"    key {edge.key}")
        return lines


def explain(compiled: CompiledStep) -> Explanation:
    """What the compiler did to a step: `.text()`, `.html()`, `.svg()`."""
    return Explanation(compiled)


# -- cut edges ---------------------------------------------------------------------------------------------


def _cut_edges(compiled: CompiledStep) -> Iterator[CutEdge]:
    takers: dict[bytes, tuple[str, ...]] = {}
    for part in compiled.partitions:
        consumers: dict[Node, list[str]] = {}
        for node in part.graph.nodes:
            for source in [*(s for s, _ in node.inputs), *node.controls]:
                if "tensor_name" in source.attrs or source.type == "Identity" and _passes_signal(source):
                    consumers.setdefault(source, []).append(node.name)
        for node, names in consumers.items():
            root = node.inputs[0][0] if node.type == "Identity" else node
            own = takers.get(root.attrs["tensor_name"], ())
            signals = {n.name for n in consumers if n.type == "Identity"}
            others = [n for n in names if n not in signals]
            takers[root.attrs["tensor_name"]] = tuple(dict.fromkeys([*own, *others]))
    step_names = {n.name for n in compiled.step.nodes}
    for part in compiled.partitions:
        for node in part.graph.nodes:
            if node.type in _SENDS and node.name not in step_names:
                yield _cut_edge(node, takers)


def _passes_signal(node: Node) -> bool:
    """True for the Identity that partition puts behind a `_Recv` which nodes wait for."""
    return bool(node.inputs) and node.origin is None and node.inputs[0][0].type in ("_Recv", "_HostRecv")


def _cut_edge(send: Node, takers: dict[bytes, tuple[str, ...]]) -> CutEdge:
    source, index = send.inputs[0]
    attrs = send.attrs
    is_signal = source.type == "Const" and bool(source.controls) and source.attrs["value"].shape == (0,)
    shape, dtype = source.shapes[index], source.dtypes[index].base_dtype
    n = shape.num_elements()
    incarnation = attrs["send_device_incarnation"] & ((1 << 64) - 1)
    sender, receiver, name = (attrs[a].decode() for a in ("send_device", "recv_device", "tensor_name"))
    return CutEdge(source.controls[0].name if is_signal else source.name, None if is_signal else index, dtype,
                   shape, None if n is None or dtype.is_object else n * dtype.size, sender, receiver,
                   f"{sender};{incarnation:016x};{receiver};{name};0:0", takers.get(attrs["tensor_name"], ()))


# -- words -------------------------------------------------------------------------------------------------


def described(edge: CutEdge) -> str:
    """'float32 (100, 784), 313.6 KB' of a tensor, 'control edge' of a control edge."""
    if edge.output is None:
        return "control edge"
    return f"{edge.dtype.name} {edge.shape}, {size_text(edge)}"


def size_text(edge: CutEdge) -> str:
    """The bytes of an edge; what is known of them where a size is open."""
    if edge.size is not None:
        return human_bytes(edge.size)
    sizes = edge.shape.sizes
    if edge.dtype.is_object or sizes is None:
        return "size unknown"
    known = edge.dtype.size
    for d in sizes:
        known *= 1 if d is None else d
    return f"{human_bytes(known)} x ?"


def human_bytes(n: int) -> str:
    """'313.6 KB': decimal units, as networks count."""
    if n < 1000:
        return f"{n} B"
    value = float(n)
    for unit in ("KB", "MB", "GB", "TB"):
        value /= 1000
        if value < 1000 or unit == "TB":
            break
    return f"{value:.1f} {unit}"


def _count(n: int, what: str) -> str:
    return f"{n:,} {what}{'' if n == 1 else 's'}"


def _named(verb: str, names: tuple[str, ...]) -> str:
    return f"{verb} {_some(list(names), False)}" if names else ""


def _some(names: list[str], full: bool) -> str:
    if full or len(names) <= _LISTED:
        return ", ".join(names)
    return ", ".join(names[:_LISTED]) + f", ... ({len(names) - _LISTED:,} more)"


def _details(record: PassRecord, full: bool) -> list[str]:
    shown = record.details if full else record.details[:_LISTED]
    lines = [f"      {name}: {what}" for name, what in shown]
    if len(record.details) > len(shown):
        lines.append(f"      ... ({len(record.details) - len(shown):,} more)")
    return lines
