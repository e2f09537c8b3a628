"""Groups of nodes that must share a device, the devices that each may have, and what to say where there are
none."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from graphrt.compiler.devices import DeviceSet
from graphrt.compiler.lower import FUNCTIONAL
from graphrt.compiler.options import CompileOptions
from graphrt.compiler.step_graph import Node, StepGraph
from graphrt.core import device_names
from graphrt.core.device_names import DeviceName
from graphrt.core.dtypes import DType, resource
from graphrt.core.errors import InvalidArgumentError, source_line
from graphrt.core.operation import Operation

ANYWHERE = DeviceName()
DEFAULT_RULE = "no wish: the default device"
# A node of the step, or an operation of the graph that is not in the step but shares a variable with it.
Member = Node | Operation


class Group:
    """Nodes that must share a device.

    Attributes:
      size: how many.
      wish: what they ask for together; wisher: the member that asked for it first.
      mask: the devices that fit (DeviceSet); pinned: the device that an earlier step gave a stateful member.
      rule: what decided, for the record.
    """

    __slots__ = ("size", "wish", "wisher", "supported", "mask", "pinned", "rule", "members", "conflict",
                 "overruled")

    def __init__(self) -> None:
        self.size = 0
        self.wish: DeviceName = ANYWHERE
        self.wisher: Member | None = None
        self.supported = self.mask = 0
        self.pinned = ""
        self.rule = DEFAULT_RULE
        self.members: list[Member] | None = None
        self.conflict: tuple[Member, DeviceName] | None = None
        self.overruled: dict[Member, str] = {}

    def rule_for(self, node: Node) -> str:
        """Why a member is where the group is."""
        return self.overruled.get(node) or f"with '{self.lead}'"

    @property
    def lead(self) -> str:
        assert self.members
        return self.members[0].name


class Groups:
    """The groups of a step. Most nodes are alone in theirs, and such groups are shared by all nodes that are
    alike."""

    def __init__(self, step: StepGraph, devices: DeviceSet, options: CompileOptions) -> None:
        self.step, self.devices, self.options = step, devices, options
        self._parent: dict[Any, Any] = {}
        self._group: dict[Any, Group] = {}
        self._alone: dict[tuple[Any, ...], Group] = {}
        self._by_name: dict[str, Node] | None = None
        self._unite()
        for root, members in self._gathered().items():
            self._group[root] = self._make_group(members)

    def of(self, node: Node) -> Group:
        """The node's group."""
        if node in self._parent:
            return self._group[self._find(node)]
        supported = self.devices.supporting(node.op_def, node.attrs)
        pinned = self.options.pinned.get(node.name, "") if node.op_def.stateful else ""
        key = (node.device, supported, pinned)
        found = self._alone.get(key)
        if found is None:
            found = self._alone[key] = Group()
            found.size, found.supported, found.pinned = 1, supported, pinned
            found.wish = device_names.parse(node.device)
            self._settle(found, node)
        return found

    # -- who belongs together ------------------------------------------------------------------------------

    def _unite(self) -> None:
        in_step: dict[Operation, Node] = {n.origin: n for n in self.step.nodes if n.origin is not None}
        for node in self.step.nodes:
            for position, (source, index) in enumerate(node.inputs):
                dtype = source.dtypes[index]
                if dtype is resource or dtype.is_ref and self._takes_ref(node, position):
                    self._union(source, node)
            if "_class" in node.attrs:
                self._colocate(node, node, in_step)
        # Consumers of the step's variables elsewhere in the graph, and what those bring with them.
        frontier = [n.origin for n in self.step.nodes
                    if n.origin is not None and (n in self._parent or _makes_state(n))]
        seen: set[Operation] = set(in_step)
        while frontier:
            op = frontier.pop()
            for other in _sharers(op):
                self._union(in_step.get(op, op), in_step.get(other, other))
                if other not in seen:
                    seen.add(other)
                    frontier.append(other)
                    if "_class" in other.attrs:
                        self._colocate(other, other, in_step)

    @staticmethod
    def _takes_ref(node: Node, position: int) -> bool:
        return node.op_def.has_ref_input and node.input_dtypes[position].is_ref

    def _colocate(self, member: Member, asker: Member, in_step: dict[Operation, Node]) -> None:
        for text in member.attrs["_class"]:
            if not text.startswith(b"loc:@"):
                continue
            name = text[5:].decode()
            other = self._named(name)
            if other is None:
                graph = (member.origin.graph if isinstance(member, Node) and member.origin is not None
                         else getattr(member, "graph", None))
                op = graph._operations.get(name) if graph is not None else None
                other = in_step.get(op, op) if op is not None else None
            # A group may be called after a node that is not there; its members still belong together.
            self._union(member, other if other is not None and other is not member else text)

    def _named(self, name: str) -> Node | None:
        if self._by_name is None:
            self._by_name = {n.name: n for n in self.step.nodes}
        return self._by_name.get(name)

    def _find(self, member: Any) -> Any:
        parent = self._parent
        root = member
        while (up := parent[root]) is not root:
            root = up
        while (up := parent[member]) is not root:
            parent[member], member = root, up
        return root

    def _union(self, a: Any, b: Any) -> None:
        self._parent.setdefault(a, a)
        self._parent.setdefault(b, b)
        root_a, root_b = self._find(a), self._find(b)
        if root_a is not root_b:
            self._parent[root_b] = root_a

    def _gathered(self) -> dict[Any, list[Member]]:
        found: dict[Any, list[Member]] = {}
        # In the step's order, so that what makes a variable stands before what takes it.
        for node in self.step.nodes:
            if node in self._parent:
                found.setdefault(self._find(node), []).append(node)
        outside = sorted((m for m in self._parent if isinstance(m, Operation)), key=lambda op: op._id)
        for op in outside:
            found.setdefault(self._find(op), []).append(op)
        return found

    # -- where a group may be ------------------------------------------------------------------------------

    def _make_group(self, members: list[Member]) -> Group:
        group = Group()
        group.size, group.members = len(members), members
        group.supported = self.devices.every
        makers = [m for m in members if _makes_state(m)]
        for member in [*makers, *(m for m in members if m not in set(makers))] if makers else members:
            group.supported &= self.devices.supporting(member.op_def, member.attrs)
            asked = _device_of(member)
            if asked:
                self._add_wish(group, member, device_names.parse(asked))
            if member.op_def.stateful and not group.pinned:
                group.pinned = self.options.pinned.get(member.name, "")
        self._settle(group, members[0])
        return group

    def _add_wish(self, group: Group, member: Member, asked: DeviceName) -> None:
        part = asked.conflict(group.wish)
        if part is None:
            if group.wisher is None:
                group.wisher = member
            group.wish = group.wish.over(asked)
            return
        if not _makes_state(member):
            lead = group.wisher.name if group.wisher is not None else ""
            group.overruled[member] = (f"with '{lead}', not on {asked} as asked: it takes its ref or "
                                       "resource or is colocated with it")
            if not _takes_state(member):
                group.conflict = group.conflict or (member, asked)
            return
        group.conflict = group.conflict or (member, asked)

    def _settle(self, group: Group, first: Member) -> None:
        """Decide the group's devices and its rule."""
        devices, wish = self.devices, group.wish
        if group.pinned and not devices.bit(group.pinned):
            group.pinned = ""
        if group.conflict is not None:
            other = group.conflict[1]
            if not self.options.soft_placement or wish._replace(type=None, index=None).conflict(other):
                group.mask = 0
                return
            wish = wish._replace(type=None, index=None)
        fitting = devices.matching(wish)
        group.mask = fitting & group.supported
        asker = group.wisher if group.wisher is not None and group.size > 1 else None
        if wish != ANYWHERE:
            group.rule = f"asked for: {wish}" + (f" by '{asker.name}'" if asker is not None else "")
        if not group.mask and self.options.soft_placement:
            task = wish._replace(type=None, index=None)
            group.mask = devices.matching(task) & group.supported
            group.rule = f"soft placement: {wish} cannot be had"
        if group.pinned:
            bit = devices.bit(group.pinned) & group.supported
            # A step may add a consumer that has no kernel there: an error, as moving the state would lose it.
            group.mask = bit


def _makes_state(member: Member) -> bool:
    """True for variables and other ops that make a ref or a resource: their wish stands over their
    consumers'."""
    if isinstance(member, Node):
        types = member.dtypes
        return bool(types) and not member.inputs and (types[0] is resource or types[0].is_ref)
    outputs = member.outputs
    return bool(outputs) and not member.inputs and (outputs[0].dtype is resource or outputs[0].dtype.is_ref)


def _takes_state(member: Member) -> bool:
    if isinstance(member, Node):
        return any(s.dtypes[i] is resource or s.dtypes[i].is_ref for s, i in member.inputs)
    return any(t.dtype is resource or t.dtype.is_ref for t in member.inputs)


def _device_of(member: Member) -> str:
    return member.device


def _sharers(op: Operation) -> Iterator[Operation]:
    """The operations that share a ref or a resource with `op` by an edge of the graph. A call takes many
    resources, and they
    need not be together: its body's nodes decide once it is in a step."""
    if _is_call(op):
        return
    for tensor in op.outputs:
        if tensor.dtype is resource:
            yield from (c for c in tensor._consumers if not _is_call(c))
        elif tensor.dtype.is_ref:
            for consumer in tensor._consumers:
                ends = zip(consumer.inputs, _input_types(consumer)) if consumer.op_def.has_ref_input else ()
                if any(t is tensor and d.is_ref for t, d in ends):
                    yield consumer
    types = _input_types(op) if op.op_def.has_ref_input else ()
    for i, tensor in enumerate(op.inputs):
        if tensor.dtype is resource and not _is_call(tensor.op) or types and types[i].is_ref:
            yield tensor.op


def _is_call(op: Operation) -> bool:
    return op.type in FUNCTIONAL or op.type in op.graph.functions


def _input_types(op: Operation) -> list[DType]:
    return op.op_def.types(op.op_def.inputs, op.attrs)


def _described(member: Member) -> str:
    built = source_line(member.location)
    return f"'{member.name}' ({member.type})" + (f", built at {built}" if built else "")


def placement_error(group: Group, node: Node, devices: DeviceSet,
                    options: CompileOptions) -> InvalidArgumentError:
    """Why the group of `node` has no device."""
    members = group.members or [node]
    asked = str(group.wish) if group.wish != ANYWHERE else ""
    lines: list[str] = []
    if group.conflict is not None:
        other, wanted = group.conflict
        first = group.wisher if group.wisher is not None else members[0]
        lines.append(f"Cannot assign a device for operation {node.name}: it must share one with "
                     f"{len(members) - 1} other op{'s' if len(members) != 2 else ''}, and they ask for "
                     "different devices.")
        lines.append(f"  asked    {asked} by {_described(first)}")
        lines.append(f"  asked    {wanted} by {_described(other)}")
    elif group.pinned and options.pinned:
        culprits = [m for m in members if not devices.supporting(m.op_def, m.attrs)
                    & devices.bit(group.pinned)]
        lines.append(f"Cannot assign a device for operation {node.name}: its state is on {group.pinned} "
                     "since an earlier step of this session, and an op that takes it has no kernel there.")
        lines += [f"  no kernel {_described(m)}" for m in culprits[:4]]
    elif asked and not devices.matching(group.wish):
        lines.append(f"Cannot assign a device for operation {node.name}: {node.type} was asked to be on "
                     f"'{asked}', and there is no such device.")
        if group.wisher is not None and group.wisher is not node:
            lines.append(f"  asked by {_described(group.wisher)}")
    else:
        _explain_kernels(group, node, members, devices, asked, lines)
    lines.append(f"  op       '{node.name}' ({node.type})")
    built = source_line(node.location)
    if built:
        lines.append(f"  built at {built}")
    would_do = devices.listed(group.supported)
    lines.append(f"  devices  {', '.join(would_do)} would do" if would_do else
                 f"  devices  none of {', '.join(devices.names)} has a kernel for all of them")
    task = group.wish._replace(type=None, index=None)
    if not options.soft_placement and asked and devices.matching(task) & group.supported and not group.pinned:
        lines.append("  hint     allow_soft_placement=True in ConfigProto takes one of them")
    return InvalidArgumentError(node, node.origin, "\n".join(lines))


def _explain_kernels(group: Group, node: Node, members: list[Member], devices: DeviceSet, asked: str,
                     lines: list[str]) -> None:
    fitting = devices.matching(group.wish)
    culprits = [m for m in members if not devices.supporting(m.op_def, m.attrs) & fitting]
    on = f"on '{asked}'" if asked else "on any device"
    if len(members) == 1:
        types = ", ".join(dict.fromkeys(d.base_dtype.name for d in [*node.input_dtypes, *node.dtypes]))
        lines.append(f"Cannot assign a device for operation {node.name}: {node.type} has no kernel {on}" +
                     (f" for {types}." if types else "."))
        return
    lines.append(f"Cannot assign a device for operation {node.name}: it must share one with "
                 f"{len(members) - 1} other op{'s' if len(members) != 2 else ''}, and no device "
                 f"{on.removeprefix('on ') if not asked else on} has kernels for all of them.")
    if group.wisher is not None:
        lines.append(f"  asked    {asked} by {_described(group.wisher)}")
    for member in (culprits or members)[:6]:
        kinds = sorted({devices.by_name[n].type
                        for n in devices.listed(devices.supporting(member.op_def, member.attrs))})
        lines.append(f"  kernels  {_described(member)}: {' and '.join(kinds) if kinds else 'none'} only")
