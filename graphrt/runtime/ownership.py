"""Who owns a value's memory: what may be a buffer of the arena, what must be copied before it leaves a plan.

Values that may share memory (views, identities, branches' merges) are one class. A class whose memory a
kernel of this run made, and that does not leave the segment, may live in the arena; a fetch of one that a
variable, a feed or a constant shares is a copy, since a fetched array belongs to the caller for ever.
"""

from __future__ import annotations

from graphrt.compiler.step_graph import Node
from graphrt.runtime.schedule import waits

Value = tuple[Node, int]
FORWARDING = frozenset(("Switch", "RefSwitch", "Merge", "RefMerge"))


class Ownership:
    """The alias classes of ordered nodes. The output of an `elided` node is its first input.

    Attributes:
      is_fresh: class root -> its memory was made by kernels of this run.
    """

    def __init__(
        self, nodes: list[Node], hoisted: set[Node], elided: frozenset[Node] | set[Node] = frozenset()
    ) -> None:
        self._parent: dict[Value, Value] = {}
        self._shared: set[Value] = set()
        parent = self._parent
        for node in nodes:
            op_def = node.op_def
            count = len(node.dtypes)
            if node.type in FORWARDING:
                sources = node.inputs[:1] if node.type.endswith("Switch") else node.inputs
                outputs = range(count) if node.type.endswith("Switch") else (0,)
                for i in range(count):
                    parent[node, i] = (node, i)
                for source in sources:
                    self._take(node, source, outputs)
            elif node in elided:
                parent[node, 0] = (node, 0)
                self._take(node, node.inputs[0], (0,))
            elif op_def.aliases and node.inputs:
                for i in range(count):
                    parent[node, i] = (node, i)
                for position in op_def.aliases:
                    if position < len(node.inputs):
                        self._take(node, node.inputs[position], range(count))
            else:
                for i in range(count):
                    parent[node, i] = (node, i)
                    if (
                        node in hoisted
                        or node.type == "_Arg"
                        or waits(node)
                        or node.dtypes[i].is_ref
                        or node.type in ("ReadVariableOp", "_ReadVariablesOp")
                        or op_def.stateful
                        and op_def.keeps_inputs
                    ):
                        self._shared.add((node, i))
        # Classes of which one member is shared are shared whole.
        self._shared = {self.root(v) for v in self._shared}

    def _take(self, node: Node, source: Value, outputs: range | tuple[int, ...]) -> None:
        if source[0].dtypes[source[1]].is_ref:
            self._shared.add((node, 0))
            self._shared.update((node, i) for i in outputs)
            return
        for i in outputs:
            self._union(source, (node, i))

    def root(self, value: Value) -> Value:
        parent = self._parent
        at = value
        while parent[at] != at:
            parent[at] = parent[parent[at]]
            at = parent[at]
        return at

    def _union(self, a: Value, b: Value) -> None:
        a, b = self.root(a), self.root(b)
        if a != b:
            self._parent[b] = a

    def is_fresh(self, value: Value) -> bool:
        """True where a kernel of this run made the memory, and no variable, feed, constant or other plan
        shares it."""
        return self.root(value) not in self._shared
