"""Lower: functional control flow becomes Switch and Merge around inlined bodies; calls become their bodies.

After it, the step has no If, Case, PartitionedCall or call by name. Of a body runs what its results need and
its effects: the function's control outputs, and in a call by name every stateful node, as in TensorFlow.
Effects are targets; those of a branch run only if it is taken. What waits for a call waits for its effects.
Cost: one visit per node, and one per node of each body at each call of it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from graphrt.compiler.inline import Body, inline_body, is_free
from graphrt.compiler.options import CompileOptions
from graphrt.compiler.step_graph import Node, Passed, PassRecord, StepGraph, sweep
from graphrt.core.dtypes import bool_, int32
from graphrt.core.errors import InvalidArgumentError, NotFoundError, UnimplementedError, source_line
from graphrt.core.function_def import FunctionDefinition
from graphrt.core.registry import OPS
from graphrt.core.shapes import SCALAR, UNKNOWN, TensorShape

_IF = frozenset(("If", "StatelessIf"))
_CASE = frozenset(("Case", "StatelessCase"))
_CALL = frozenset(("PartitionedCall", "StatefulPartitionedCall"))
_LOOP = frozenset(("While", "StatelessWhile", "For"))
_BRANCHES = _IF | _CASE | {"Switch", "RefSwitch", "_SwitchN"}
FUNCTIONAL = _IF | _CASE | _CALL | _LOOP

Edge = tuple[Node, int]


def lower_control_flow(step: StepGraph, devices: Any, options: CompileOptions) -> Passed:
    """The step without functional control flow.

    Raises:
      UnimplementedError: a functional loop, or a function that calls itself.
      NotFoundError: a function that the library does not have.
      InvalidArgumentError: a call with another number or other types of arguments than the function takes.
    """
    before = len(step)
    if not any(is_functional(n, step.library) for n in step.nodes):
        return step, PassRecord("lower_control_flow", before, before, "no functional control flow")
    made = _Lowering(step)
    lowered = sweep(made.run())
    return lowered, PassRecord("lower_control_flow", before, len(lowered), made.summary(), made.details)


def is_functional(node: Node, library: dict[str, Any]) -> bool:
    return node.type in FUNCTIONAL or node.type in library


class _Lowering:
    def __init__(self, step: StepGraph) -> None:
        self.step = step
        self.library = dict(step.library)
        self.names = {n.name for n in step.nodes}
        self.ready: list[Node] = []
        # An output of a node that is gone: what takes its place. A node that is gone: what to wait for in its
        # place.
        self.moved: dict[Edge, Edge] = {}
        self.done: dict[Node, Node] = {}
        self.effects: list[Node] = []
        self.may_be_dead = any(n.type in _BRANCHES for n in step.nodes)
        self.inside: dict[Node, tuple[str, ...]] = {}  # the functions that a node came out of
        self.details: list[tuple[str, str]] = []

    def run(self) -> StepGraph:
        waiting = deque(self.step.nodes)
        while waiting:
            node = waiting.popleft()
            self._rewire(node)
            if is_functional(node, self.library):
                waiting.extendleft(reversed(self._expand(node)))
            else:
                self.ready.append(node)
        targets = [self.done.get(t, t) for t in self.step.targets]
        targets += [self.done.get(e, e) for e in self.effects]
        return StepGraph(self.ready, self.step.args, self.step.retvals, list(dict.fromkeys(targets)),
                         self.library)

    def summary(self) -> str:
        kinds: dict[str, int] = {}
        for _, what in self.details:
            kind = what.split(":")[0]
            kinds[kind] = kinds.get(kind, 0) + 1
        return ", ".join(f"{n} {kind}" for kind, n in kinds.items())

    def _rewire(self, node: Node) -> None:
        for i, edge in enumerate(node.inputs):
            while edge in self.moved:
                edge = self.moved[edge]
            node.inputs[i] = edge
        if node.controls:
            node.controls = list(dict.fromkeys(self.done.get(c, c) for c in node.controls))

    def _expand(self, node: Node) -> list[Node]:
        if node.type in _LOOP:
            raise UnimplementedError(node, node.origin,
                                     f"{node.type} '{node.name}' is a functional loop, which graphrt does "
                                     f"not run yet.\n  built at {source_line(node.location)}")
        if node.type in _IF:
            return self._expand_if(node)
        if node.type in _CASE:
            return self._expand_case(node)
        return self._expand_call(node)

    # -- calls ---------------------------------------------------------------------------------------------

    def _expand_call(self, node: Node) -> list[Node]:
        name = node.attrs["f"].name if node.type in _CALL else node.type
        made: list[Node] = []
        gate = self._call_gate(node, made)
        arguments = list(node.inputs)
        if gate is not None and node.controls:
            # Nothing of the body may run before what the call waits for, so its arguments wait too.
            arguments = [self._gated(made, node, edge, gate(), f"arg_{i}")
                         for i, edge in enumerate(arguments)]
        body = self._inline(node, name, node.name, arguments, gate, made)
        for i, edge in enumerate(body.outputs):
            self.moved[node, i] = edge
        # Without an effect, who waits for the call waits for what it waits for, and is dead where it is.
        self._finish(node, made, body.effects or ([gate()] if gate is not None else []))
        self.details.append((node.name, f"call inlined: {name}, {len(body.nodes)} nodes"))
        return made

    def _call_gate(self, node: Node, made: list[Node]) -> Callable[[], Node] | None:
        """Makes, when it is first asked for, the node that runs where the call's control inputs and arguments
        have."""
        open_ends = [edge for edge in node.inputs if not is_free(edge[0])]
        if not node.controls and not (self.may_be_dead and open_ends):
            return None
        gates: list[Node] = []

        def gate() -> Node:
            if not gates:
                controls = list(node.controls)
                for i, (source, index) in enumerate(open_ends if self.may_be_dead else ()):
                    # A Switch is alive where one of its outputs is dead: what waits for the output takes it.
                    dtype = source.dtypes[index].base_dtype
                    controls.append(self._node(made, f"{node.name}/taken_{i}", "Identity", {"T": dtype},
                                               [(source, index)], [dtype], [source.shapes[index]], node))
                gates.append(self._node(made, f"{node.name}/start", "NoOp", {}, [], [], [], node, controls))
            return gates[0]

        return gate

    def _inline(self, node: Node, function: str, prefix: str, arguments: list[Edge],
                gate: Callable[[], Node] | None, made: list[Node]) -> Body:
        definition = self._function(node, function)
        trail = self.inside.get(node, ())
        if function in trail:
            raise UnimplementedError(node, node.origin,
                                     f"function '{function}' calls itself, through {' -> '.join(trail)}: a "
                                     "body that has no end cannot be put in place of a call.\n  called at "
                                     f"{source_line(node.location)}")
        self._check_arguments(node, definition, arguments)
        body = inline_body(definition, prefix, arguments, gate, node, self._unique,
                           lambda inner: is_functional(inner, self.library), node.type not in FUNCTIONAL)
        for inner in body.nodes:
            self.inside[inner] = (*trail, function)
            self.may_be_dead |= inner.type in _BRANCHES
        made += body.nodes
        self.effects += body.effects
        if gate is not None:
            # What leaves a gated body is dead where the body is.
            body.outputs = [self._gated(made, node, edge, gate(), "result") if is_free(edge[0]) else edge
                            for edge in body.outputs]
        return body

    def _function(self, node: Node, name: str) -> FunctionDefinition:
        found = self.library.get(name)
        if found is None:
            raise NotFoundError(node, node.origin,
                                f"{node.type} '{node.name}' calls the function '{name}', which is not in the "
                                f"library.\n  built at {source_line(node.location)}")
        for inner, definition in found.graph.functions.items():
            self.library.setdefault(inner, definition)
        return found

    @staticmethod
    def _check_arguments(node: Node, definition: FunctionDefinition, arguments: list[Edge]) -> None:
        given = [s.dtypes[i].base_dtype for s, i in arguments]
        if given != definition.argument_types:
            raise InvalidArgumentError(node, node.origin,
                                       f"{node.type} '{node.name}' passes "
                                       f"({', '.join(d.name for d in given)}) to {definition!r}.\n  built at "
                                       f"{source_line(node.location)}")
        if len(definition.result_types) != len(node.dtypes):
            raise InvalidArgumentError(node, node.origin,
                                       f"{node.type} '{node.name}' has {len(node.dtypes)} outputs, and "
                                       f"{definition!r} another number.\n  built at "
                                       f"{source_line(node.location)}")

    # -- branches ------------------------------------------------------------------------------------------

    def _expand_if(self, node: Node) -> list[Node]:
        made: list[Node] = []
        predicate, arguments = node.inputs[0], node.inputs[1:]
        predicate = self._as_bool(node, predicate, made)
        switch = self._switch(made, node, "switch", predicate, predicate)
        bodies: list[Body] = []
        pivots: list[Node] = []
        switched = [None if is_free(edge[0]) else self._switch(made, node, f"switch_{i}", edge, predicate)
                    for i, edge in enumerate(arguments)]
        for index, (branch, attr) in enumerate((("else", "else_branch"), ("then", "then_branch"))):
            pivot = self._node(made, f"{node.name}/{branch}", "Identity", {"T": bool_}, [(switch, index)],
                               [bool_], [SCALAR], node)
            inner = [edge if s is None else (s, index) for edge, s in zip(arguments, switched)]
            function = node.attrs[attr].name
            bodies.append(self._inline(node, function, f"{node.name}/{branch}", inner, partial(_same, pivot),
                                       made))
            pivots.append(pivot)
            self.details.append((node.name,
                                 f"branch inlined: {branch} is {function}, {len(bodies[-1].nodes)} nodes"))
        self._merge(node, bodies, pivots, made)
        return made

    def _expand_case(self, node: Node) -> list[Node]:
        branches = [ref.name for ref in node.attrs["branches"]]
        index, arguments = node.inputs[0], node.inputs[1:]
        made: list[Node] = []
        bodies: list[Body] = []
        pivots: list[Node] = []
        earlier: Edge | None = None
        for i, function in enumerate(branches):
            # The last branch takes every index that is not another's.
            if i < len(branches) - 1:
                number = self._node(made, f"{node.name}/index_{i}", "Const",
                                    {"value": np.array(i, np.int32), "dtype": int32}, [], [int32], [SCALAR],
                                    node)
                mine: Edge = (self._node(made, f"{node.name}/is_{i}", "Equal",
                                         {"T": int32, "incompatible_shape_error": True}, [index, (number, 0)],
                                         [bool_], [SCALAR], node), 0)
                either = mine if earlier is None else (self._node(made, f"{node.name}/up_to_{i}", "LogicalOr",
                                                                  {}, [earlier, mine], [bool_], [SCALAR],
                                                                  node), 0)
            elif earlier is None:
                mine = either = self._always(node, index, made)
            else:
                mine = either = (self._node(made, f"{node.name}/is_other", "LogicalNot", {}, [earlier],
                                            [bool_], [SCALAR], node), 0)
            switch = self._switch(made, node, f"switch_{i}", mine, mine)
            pivot = self._node(made, f"{node.name}/branch_{i}", "Identity", {"T": bool_}, [(switch, 1)],
                               [bool_], [SCALAR], node)
            inner = [edge if is_free(edge[0])
                     else (self._switch(made, node, f"switch_{i}_{j}", edge, mine), 1)
                     for j, edge in enumerate(arguments)]
            bodies.append(self._inline(node, function, f"{node.name}/branch_{i}", inner,
                                       partial(_same, pivot), made))
            pivots.append(pivot)
            earlier = either
            self.details.append((node.name,
                                 f"branch inlined: {i} is {function}, {len(bodies[-1].nodes)} nodes"))
        self._merge(node, bodies, pivots, made)
        return made

    def _always(self, node: Node, index: Edge, made: list[Node]) -> Edge:
        """True, once the branch index of a Case with one branch is there."""
        return (self._node(made, f"{node.name}/always", "Equal",
                           {"T": int32, "incompatible_shape_error": True}, [index, index], [bool_], [SCALAR],
                           node), 0)

    def _merge(self, node: Node, bodies: list[Body], pivots: list[Node], made: list[Node]) -> None:
        count = len(bodies)
        for i, dtype in enumerate(node.dtypes):
            merge = self._node(made, f"{node.name}/merge_{i}", "Merge", {"T": dtype, "N": count},
                               [body.outputs[i] for body in bodies], [dtype, int32], [node.shapes[i], SCALAR],
                               node)
            self.moved[node, i] = (merge, 0)
        # A branch is done when its effects are: alive on the one that was taken.
        ends = [self._node(made, f"{node.name}/done_{i}", "Identity", {"T": bool_}, [(pivot, 0)], [bool_],
                           [SCALAR], node, list(body.effects))
                for i, (pivot, body) in enumerate(zip(pivots, bodies))]
        done = self._node(made, f"{node.name}/done", "Merge", {"T": bool_, "N": count},
                          [(end, 0) for end in ends], [bool_, int32], [SCALAR, SCALAR], node)
        self._finish(node, made, [done])

    def _finish(self, node: Node, made: list[Node], waited: list[Node]) -> None:
        """What waits for the node waits for all of `waited`; the node that says so has its name."""
        self.names.discard(node.name)
        self.done[node] = self._node(made, node.name, "NoOp", {}, [], [], [], node,
                                     list(dict.fromkeys(waited)) or list(node.controls))

    def _as_bool(self, node: Node, predicate: Edge, made: list[Node]) -> Edge:
        dtype = predicate[0].dtypes[predicate[1]].base_dtype
        if dtype is bool_:
            return predicate
        if "ToBool" not in OPS:
            raise UnimplementedError(node, node.origin,
                                     f"{node.type} '{node.name}' has a predicate of {dtype.name}; graphrt "
                                     f"takes bool.\n  built at {source_line(node.location)}\n  hint     "
                                     "tf.cast(x, tf.bool)")
        return (self._node(made, f"{node.name}/to_bool", "ToBool", {"T": dtype}, [predicate], [bool_],
                           [SCALAR], node), 0)

    # -- nodes ---------------------------------------------------------------------------------------------

    def _unique(self, name: str) -> str:
        made, n = name, 0
        while made in self.names:
            n += 1
            made = f"{name}_{n}"
        self.names.add(made)
        return made

    def _node(self, made: list[Node], name: str, kind: str, attrs: dict[str, Any], inputs: list[Edge],
              dtypes: list[Any], shapes: list[TensorShape], caller: Node,
              controls: list[Node] | None = None) -> Node:
        node = Node(self._unique(name), OPS[kind], attrs, inputs, controls or [], dtypes, shapes,
                    caller.device, None, caller.location)
        made.append(node)
        return node

    def _switch(self, made: list[Node], node: Node, name: str, value: Edge, predicate: Edge) -> Node:
        """A Switch of a value, on its device: output 0 is alive where the predicate is false, output 1 where
        it is true."""
        source, index = value
        dtype = source.dtypes[index].base_dtype
        attrs = {"T": dtype, "_class": [b"loc:@" + source.name.encode()]}
        shape = source.shapes[index] if source.shapes else UNKNOWN
        return self._node(made, f"{node.name}/{name}", "Switch", attrs, [value, predicate], [dtype, dtype],
                          [shape, shape], node, list(node.controls))

    def _gated(self, made: list[Node], node: Node, edge: Edge, gate: Node, name: str) -> Edge:
        """The value, once `gate` has run, and dead where `gate` is."""
        source, index = edge
        dtype = source.dtypes[index].base_dtype
        return (self._node(made, f"{node.name}/{name}", "Identity", {"T": dtype}, [edge], [dtype],
                           [source.shapes[index]], node, [gate]), 0)


def _same(node: Node) -> Node:
    return node
