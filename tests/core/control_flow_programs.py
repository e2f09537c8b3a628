"""Small programs with conditionals, written once for graphrt and for TensorFlow's compat.v1."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np


class Built(NamedTuple):
    """Fetches, and the steps (feeds by placeholder) to run them with; `initializer` runs first."""

    fetches: list[Any]
    steps: list[dict[Any, Any]]
    initializer: Any = None


def _bools(*placeholders: Any) -> list[dict[Any, bool]]:
    made: list[dict[Any, bool]] = [{}]
    for p in placeholders:
        made = [{**m, p: v} for m in made for v in (True, False)]
    return made


def _inputs(tf: Any, *names: str) -> tuple[Any, list[Any]]:
    return tf.placeholder(tf.float32, [3], name="x"), [tf.placeholder(tf.bool, [], name=n) for n in names]


_X = np.array([0.5, -1.5, 2.0], np.float32)


def one_branch_each(tf: Any) -> Built:
    x, (p,) = _inputs(tf, "p")
    y = tf.constant(3.0, name="y")
    z = tf.cond(p, lambda: x * 2.0 + y, lambda: x)
    return Built([z, tf.gradients(z, [x, y])], [{**s, x: _X} for s in _bools(p)])


def nested(tf: Any) -> Built:
    x, (p, q) = _inputs(tf, "p", "q")
    z = tf.cond(
        p,
        lambda: tf.cond(q, lambda: tf.exp(x), lambda: x * x * x),
        lambda: tf.cond(q, lambda: -x, lambda: tf.sin(x)),
        name="outer",
    )
    return Built([z, tf.gradients(z, x)], [{**s, x: _X} for s in _bools(p, q)])


def many_outputs(tf: Any) -> Built:
    x, (p,) = _inputs(tf, "p")
    z = tf.cond(p, lambda: {"a": x * 2.0, "b": [tf.tanh(x), 3]}, lambda: {"a": x + 1.0, "b": [x, 4]})
    return Built(
        [z, tf.gradients(z["a"], x), tf.gradients([z["a"], z["b"][0]], x)], [{**s, x: _X} for s in _bools(p)]
    )


def one_branch_does_not_depend(tf: Any) -> Built:
    x, (p,) = _inputs(tf, "p")
    z = tf.cond(p, lambda: x * x, lambda: tf.zeros([3]))
    return Built([z, tf.gradients(z, x)], [{**s, x: _X} for s in _bools(p)])


def twice_differentiated(tf: Any) -> Built:
    x, (p,) = _inputs(tf, "p")
    z = tf.cond(p, lambda: x * x * x, lambda: tf.exp(x))
    (first,) = tf.gradients(z, x)
    return Built([z, first, tf.gradients(first, x)], [{**s, x: _X} for s in _bools(p)])


def gradient_inside(tf: Any) -> Built:
    x, (p,) = _inputs(tf, "p")
    z = tf.cond(p, lambda: tf.gradients(x * x * x, x)[0], lambda: x)
    return Built([z], [{**s, x: _X} for s in _bools(p)])


def gradient_of_what_is_inside(tf: Any) -> Built:
    x, (p, q) = _inputs(tf, "p", "q")

    def branch() -> Any:
        inner = tf.cond(q, lambda: x * x, lambda: tf.sin(x))
        return inner + tf.gradients(inner, x)[0]

    z = tf.cond(p, branch, lambda: x)
    return Built([z], [{**s, x: _X} for s in _bools(p, q)])


def resource_variables(tf: Any) -> Built:
    x, (p,) = _inputs(tf, "p")
    v = tf.Variable([1.0, 2.0, 3.0], use_resource=True, name="v")
    z = tf.cond(p, lambda: v * x, lambda: x)
    gradients = tf.gradients(z, [v, x])
    return Built([z, gradients], [{**s, x: _X} for s in _bools(p)], v.initializer)


def ref_variables(tf: Any) -> Built:
    x, (p,) = _inputs(tf, "p")
    w = tf.Variable([1.0, 2.0, 3.0], use_resource=False, name="w")
    z = tf.cond(p, lambda: (w * x, x), lambda: (x, w + x))
    return Built([z, tf.gradients(z, [w, x])], [{**s, x: _X} for s in _bools(p)], w.initializer)


def assignments_to_references(tf: Any) -> Built:
    _, (p,) = _inputs(tf, "p")
    w = tf.Variable([1.0, 2.0, 3.0], use_resource=False, name="w")
    mixed = tf.cond(p, lambda: tf.assign_add(w, [1.0, 1.0, 1.0]), lambda: w.initial_value)
    both = tf.cond(p, lambda: tf.assign_add(w, [1.0, 1.0, 1.0]), lambda: tf.assign(w, [5.0, 5.0, 5.0]))
    done = tf.cond(p, lambda: tf.assign_add(w, [1.0, 1.0, 1.0]).op, lambda: tf.no_op())
    return Built([mixed, both, done, w], [], w.initializer)


def assignments_to_resources(tf: Any) -> Built:
    _, (p,) = _inputs(tf, "p")
    v = tf.Variable([1.0, 2.0, 3.0], use_resource=True, name="v")
    z = tf.cond(
        p, lambda: tf.identity(v.assign_add([1.0, 1.0, 1.0])), lambda: tf.identity(v.assign([0.0, 7.0, 0.0]))
    )
    return Built([z], _bools(p) * 2, v.initializer)


def slices_from_one_branch(tf: Any) -> Built:
    table = tf.placeholder(tf.float32, [4, 2], name="table")
    p = tf.placeholder(tf.bool, [], name="p")
    indices = tf.placeholder(tf.int32, [3], name="i")
    z = tf.cond(p, lambda: tf.gather(table, indices), lambda: tf.zeros([3, 2]))
    (gradient,) = tf.gradients(z, table)
    feeds = {table: np.arange(8, dtype=np.float32).reshape(4, 2), indices: [1, 3, 1]}
    return Built([z, tf.convert_to_tensor(gradient)], [{**s, **feeds} for s in _bools(p)])


def slices_from_a_variable(tf: Any) -> Built:
    table = tf.Variable(np.arange(8, dtype=np.float32).reshape(4, 2), use_resource=True, name="table")
    p = tf.placeholder(tf.bool, [], name="p")
    z = tf.cond(p, lambda: tf.gather(table, [1, 3, 1]), lambda: tf.gather(table, [0, 0, 2]) * 2.0)
    (gradient,) = tf.gradients(z, table)
    return Built([z, tf.convert_to_tensor(gradient)], _bools(p), table.initializer)


def slices_returned(tf: Any) -> Built:
    p = tf.placeholder(tf.bool, [], name="p")
    a = tf.IndexedSlices(tf.constant([[1.0]]), tf.constant([0]), tf.constant([2, 1]))
    b = tf.IndexedSlices(tf.constant([[2.0]]), tf.constant([1], tf.int64), tf.constant([2, 1]))
    z = tf.cond(p, lambda: a, lambda: b)
    return Built([[z.values, z.indices, z.dense_shape], tf.convert_to_tensor(z)], _bools(p))


def cases(tf: Any) -> Built:
    x, (a, b) = _inputs(tf, "a", "b")
    z = tf.case([(a, lambda: x * 2.0), (b, lambda: x * x)], default=lambda: tf.sin(x))
    return Built([z, tf.gradients(z, x)], [{**s, x: _X} for s in _bools(a, b)])


def exclusive_cases(tf: Any) -> Built:
    x, (a, b) = _inputs(tf, "a", "b")
    z = tf.case([(a, lambda: x * 2.0), (b, lambda: x * x)], default=lambda: tf.sin(x), exclusive=True)
    return Built([z], [{**s, x: _X} for s in _bools(a, b)[1:]])


def cases_without_default(tf: Any) -> Built:
    x, (a, b) = _inputs(tf, "a", "b")
    z = tf.case({a: lambda: x * 2.0, b: lambda: x * x})
    return Built([z], [{a: True, b: False, x: _X}, {a: False, b: True, x: _X}])


def numbered_cases(tf: Any) -> Built:
    x = tf.placeholder(tf.float32, [3], name="x")
    i = tf.placeholder(tf.int32, [], name="i")
    z = tf.switch_case(i, [lambda: x * 2.0, lambda: x * x * x], default=lambda: tf.sin(x))
    (first,) = tf.gradients(z, x)
    return Built([z, first, tf.gradients(first, x)], [{i: n, x: _X} for n in (-1, 0, 1, 2, 3)])


def under_dependencies(tf: Any) -> Built:
    x, (p,) = _inputs(tf, "p")
    v = tf.Variable(0.0, use_resource=True, name="v")
    with tf.control_dependencies([v.assign_add(1.0)]):
        z = tf.cond(p, lambda: x * 2.0, lambda: x + 1.0)
    with tf.control_dependencies([z]):
        read = v.read_value()
    return Built([z, read], [{**s, x: _X} for s in _bools(p)], v.initializer)


def dropout_in_a_branch(tf: Any) -> Built:
    x, (p,) = _inputs(tf, "p")
    tf.set_random_seed(3)
    noise = tf.random_uniform([3], seed=5)
    z = tf.cond(p, lambda: x * tf.random_uniform([3], seed=11), lambda: x + noise)
    return Built([z, tf.gradients(z, x)], [{**s, x: _X} for s in _bools(p) * 3])


def shapes_of_steps(tf: Any) -> Built:
    x = tf.placeholder(tf.float32, [None, 2], name="x")
    p = tf.placeholder(tf.bool, [], name="p")
    z = tf.cond(p, lambda: tf.reduce_sum(x * x, axis=0), lambda: tf.reduce_mean(x, axis=0))
    rows = [np.arange(2 * n, dtype=np.float32).reshape(n, 2) for n in (1, 3, 4)]
    return Built([z, tf.gradients(z, x)], [{p: v, x: r} for r in rows for v in (True, False)])


def _regression(tf: Any, use_resource: bool) -> tuple[Any, Any, Any, Any]:
    """(predicate, variable, a function that builds the loss, steps)."""
    x, (p,) = _inputs(tf, "p")
    w = tf.get_variable("w", [3], initializer=tf.constant_initializer(0.5), use_resource=use_resource)

    def loss() -> Any:
        fit = tf.cond(p, lambda: tf.reduce_sum(w * x), lambda: tf.reduce_mean(tf.exp(w) - x))
        return fit + tf.reduce_sum(w * w)

    return p, w, loss, [{**s, x: _X} for s in _bools(p) * 3]


def training_through_a_branch(tf: Any) -> Built:
    _, w, loss, steps = _regression(tf, use_resource=False)
    with tf.control_dependencies([tf.train.AdamOptimizer(0.1).minimize(loss())]):
        after = w.read_value()
    return Built([after], steps, tf.global_variables_initializer())


def training_in_a_branch(tf: Any) -> Built:
    p, w, loss, steps = _regression(tf, use_resource=True)
    optimizer = tf.train.AdamOptimizer(0.1)
    with tf.control_dependencies([tf.cond(p, lambda: optimizer.minimize(loss()), lambda: tf.no_op())]):
        after = w.read_value()
    return Built([after], steps, tf.global_variables_initializer())


PROGRAMS: list[Callable[[Any], Built]] = [
    one_branch_each,
    nested,
    many_outputs,
    one_branch_does_not_depend,
    twice_differentiated,
    gradient_inside,
    gradient_of_what_is_inside,
    resource_variables,
    ref_variables,
    assignments_to_references,
    assignments_to_resources,
    slices_from_one_branch,
    slices_from_a_variable,
    slices_returned,
    cases,
    exclusive_cases,
    cases_without_default,
    numbered_cases,
    under_dependencies,
    dropout_in_a_branch,
    shapes_of_steps,
    training_through_a_branch,
    training_in_a_branch,
]

# A ref variable cannot be updated in a function.
FUNCTIONAL_PROGRAMS = [p for p in PROGRAMS if p is not assignments_to_references]


def run(module: Any, program: Callable[[Any], Built], functional: bool = False) -> list[Any]:
    """The values of every fetch in every step, flat."""
    was_on = module.control_flow_v2_enabled()
    (module.enable_control_flow_v2 if functional else module.disable_control_flow_v2)()
    try:
        graph = module.Graph()
        with graph.as_default():
            built = program(module)
    finally:
        (module.enable_control_flow_v2 if was_on else module.disable_control_flow_v2)()
    found: list[Any] = []
    with module.Session(graph=graph) as session:
        if built.initializer is not None:
            session.run(built.initializer)
        for feeds in built.steps:
            for fetch in built.fetches:
                found += flat(session.run(fetch, feeds))
    return found


def flat(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [v for key in sorted(value) for v in flat(value[key])]
    if isinstance(value, (list, tuple)):
        return [leaf for v in value for leaf in flat(v)]
    return [value]
