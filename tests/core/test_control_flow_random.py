"""Random programs of nested conditionals: against their evaluation in Python, against TensorFlow, from eight
threads."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import graphrt

PREDICATES = 3
_SLOW = dict(
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture], derandomize=True
)


@dataclass(frozen=True)
class Leaf:
    """The input, a constant, or a value of a branch around (by how many branches out)."""

    kind: str
    value: float = 0.0


@dataclass(frozen=True)
class Apply:
    kind: str
    arguments: tuple[Any, ...]


@dataclass(frozen=True)
class Cond:
    """A conditional on predicate `predicate`, or on the sign of the first element of `on`; each side counts
    its runs."""

    predicate: int
    on: Any
    true: Any
    false: Any
    counter: int


def _expressions() -> st.SearchStrategy[Any]:
    leaves = st.one_of(
        st.just(Leaf("x")), st.just(Leaf("y")), st.floats(-2, 2, width=32).map(lambda v: Leaf("constant", v))
    )

    def grow(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
        unary = st.tuples(st.sampled_from(["sin", "tanh", "neg"]), inner).map(lambda t: Apply(t[0], (t[1],)))
        binary = st.tuples(st.sampled_from(["add", "mul", "sub"]), inner, inner).map(
            lambda t: Apply(t[0], t[1:])
        )
        cond = st.tuples(st.integers(0, PREDICATES - 1), st.none() | inner, inner, inner).map(
            lambda t: Cond(*t, counter=0)
        )
        return st.one_of(unary, binary, cond, cond)

    return st.recursive(leaves, grow, max_leaves=10)


def _numbered(expression: Any, counters: list[int]) -> Any:
    """The expression with a counter of its own for each conditional."""
    if isinstance(expression, Cond):
        n = len(counters)
        counters.append(n)
        on = None if expression.on is None else _numbered(expression.on, counters)
        return Cond(
            expression.predicate,
            on,
            _numbered(expression.true, counters),
            _numbered(expression.false, counters),
            n,
        )
    if isinstance(expression, Apply):
        return Apply(expression.kind, tuple(_numbered(a, counters) for a in expression.arguments))
    return expression


def _evaluate(e: Any, x: np.ndarray, y: np.ndarray, predicates: list[bool], counts: np.ndarray) -> np.ndarray:
    if isinstance(e, Leaf):
        return x if e.kind == "x" else y if e.kind == "y" else np.full(2, e.value)
    if isinstance(e, Apply):
        values = [_evaluate(a, x, y, predicates, counts) for a in e.arguments]
        return {
            "sin": np.sin,
            "tanh": np.tanh,
            "neg": np.negative,
            "add": np.add,
            "mul": np.multiply,
            "sub": np.subtract,
        }[e.kind](*values)
    taken = (
        predicates[e.predicate] if e.on is None else bool(_evaluate(e.on, x, y, predicates, counts)[0] > 0.1)
    )
    counts[e.counter, int(taken)] += 1
    return _evaluate(e.true if taken else e.false, x, y, predicates, counts)


def _build(
    tf: Any, e: Any, x: Any, y: Any, predicates: list[Any], counters: list[Any], use_resource: bool
) -> Any:
    if isinstance(e, Leaf):
        return x if e.kind == "x" else y if e.kind == "y" else tf.constant([e.value] * 2, tf.float64)
    if isinstance(e, Apply):
        values = [_build(tf, a, x, y, predicates, counters, use_resource) for a in e.arguments]
        return {
            "sin": tf.sin,
            "tanh": tf.tanh,
            "neg": tf.negative,
            "add": tf.add,
            "mul": tf.multiply,
            "sub": tf.subtract,
        }[e.kind](*values)

    def side(expression: Any, taken: int) -> Any:
        def branch() -> Any:
            value = _build(tf, expression, x, y, predicates, counters, use_resource)
            if not counters:
                return value
            counter = counters[e.counter][taken]
            update = counter.assign_add(1) if use_resource else tf.assign_add(counter, 1)
            with tf.control_dependencies([update]):
                return tf.identity(value)

        return branch

    if e.on is None:
        predicate = predicates[e.predicate]
    else:
        predicate = _build(tf, e.on, x, y, predicates, counters, use_resource)[0] > 0.1
    return tf.cond(predicate, side(e.true, 1), side(e.false, 0))


class Program:
    """A random program in a graph of graphrt or TensorFlow, with its gradients and counters."""

    def __init__(
        self,
        tf: Any,
        expression: Any,
        count: int,
        functional: bool,
        use_resource: bool = True,
        with_gradients: bool = True,
    ) -> None:
        (tf.enable_control_flow_v2 if functional else tf.disable_control_flow_v2)()
        try:
            self.tf, self.graph = tf, tf.Graph()
            with self.graph.as_default():
                self.x, self.y = (
                    tf.placeholder(tf.float64, [2], name="x"),
                    tf.placeholder(tf.float64, [2], name="y"),
                )
                self.predicates = [tf.placeholder(tf.bool, [], name=f"p{i}") for i in range(PREDICATES)]
                self.counters = [
                    [tf.Variable(0, use_resource=use_resource, name=f"n{i}_{j}") for j in (0, 1)]
                    for i in range(count)
                ]
                self.value = _build(
                    tf, expression, self.x, self.y, self.predicates, self.counters, use_resource
                )
                self.gradients = (
                    [
                        tf.zeros([2], tf.float64) if g is None else g
                        for g in tf.gradients(self.value, [self.x, self.y])
                    ]
                    if with_gradients
                    else []
                )
                self.start = tf.global_variables_initializer()
        finally:
            tf.disable_control_flow_v2()

    def feeds(self, x: np.ndarray, y: np.ndarray, predicates: list[bool]) -> dict[Any, Any]:
        return {self.x: x, self.y: y, **dict(zip(self.predicates, predicates))}


_INPUTS = [(np.array([0.7, -1.1]), np.array([-0.4, 0.9])), (np.array([-0.6, 0.2]), np.array([1.3, -0.8]))]
_ALL = [[bool(n >> i & 1) for i in range(PREDICATES)] for n in range(2**PREDICATES)]


@settings(max_examples=60, **_SLOW)
@given(_expressions(), st.sampled_from(["v1 ref", "v1 resource", "v2 resource"]))
def test_values_and_effects_are_those_of_python(expression: Any, form: str) -> None:
    numbers: list[int] = []
    expression = _numbered(expression, numbers)
    program = Program(
        graphrt,
        expression,
        len(numbers),
        form.startswith("v2"),
        form.endswith("resource"),
        with_gradients=False,
    )
    counts = np.zeros((len(numbers), 2), int)
    with graphrt.Session(graph=program.graph) as session:
        session.run(program.start)
        for x, y in _INPUTS:
            for predicates in _ALL:
                expected = _evaluate(expression, x, y, predicates, counts)
                found = session.run(program.value, program.feeds(x, y, predicates))
                np.testing.assert_allclose(found, expected, rtol=1e-12)
        if numbers:
            np.testing.assert_array_equal(np.array(session.run(program.counters)), counts)


@settings(max_examples=25, **_SLOW)
@given(_expressions(), st.booleans())
def test_values_and_gradients_are_those_of_tensorflow(tf: Any, expression: Any, functional: bool) -> None:
    numbers: list[int] = []
    expression = _numbered(expression, numbers)
    ours = Program(graphrt, expression, 0, functional)
    theirs = Program(tf.compat.v1, expression, 0, functional)
    # TensorFlow's graph optimizer loses the value of cond(p, x + x, x)'s gradient.
    config = tf.compat.v1.ConfigProto()
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    with graphrt.Session(graph=ours.graph) as a, tf.compat.v1.Session(graph=theirs.graph, config=config) as b:
        for x, y in _INPUTS:
            for predicates in _ALL:
                found = a.run([ours.value, *ours.gradients], ours.feeds(x, y, predicates))
                expected = b.run([theirs.value, *theirs.gradients], theirs.feeds(x, y, predicates))
                for mine, other in zip(found, expected):
                    np.testing.assert_allclose(mine, other, rtol=1e-10, atol=1e-12)


@settings(max_examples=8, **_SLOW)
@given(_expressions().filter(lambda e: isinstance(e, Cond)), st.booleans())
def test_eight_threads_run_one_session_at_once(expression: Any, functional: bool) -> None:
    numbers: list[int] = []
    expression = _numbered(expression, numbers)
    program = Program(graphrt, expression, len(numbers), functional)
    scratch = np.zeros((len(numbers), 2), int)
    cases = [(x, y, p) for x, y in _INPUTS for p in _ALL]
    expected = [_evaluate(expression, *case, scratch) for case in cases]
    failures: list[BaseException] = []
    rounds = 5
    with graphrt.Session(graph=program.graph) as session:
        session.run(program.start)

        def work(offset: int) -> None:
            try:
                for n in range(rounds * len(cases)):
                    i = (n + offset) % len(cases)
                    found = session.run([program.value, program.gradients], program.feeds(*cases[i]))
                    np.testing.assert_allclose(found[0], expected[i], rtol=1e-12)
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(timeout=120)
        assert not any(thread.is_alive() for thread in threads)
        if failures:
            raise failures[0]
        # Updates of resource variables do not get lost.
        np.testing.assert_array_equal(np.array(session.run(program.counters)), scratch * 8 * rounds)
