"""The same program built by graphrt and by TensorFlow: are the nodes the same, and the values?

`build(tf)` is given either module and returns a tensor or a nest of them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import graphrt

Build = Callable[[Any], Any]
# Attrs that TensorFlow 2 adds to nodes of a v1 graph and no one reads there.
_IGNORED = ("_output_shapes", "_has_manual_control_dependencies")


@contextlib.contextmanager
def _as_tensorflow_1(v1: Any) -> Iterator[None]:
    """Switch/Merge conditionals and ref variables, as a script has after disable_v2_behavior()."""
    control_flow, resources = v1.control_flow_v2_enabled(), v1.resource_variables_enabled()
    v1.disable_control_flow_v2()
    v1.disable_resource_variables()
    try:
        yield
    finally:
        if control_flow:
            v1.enable_control_flow_v2()
        if resources:
            v1.enable_resource_variables()


def built_by_both(tf: Any, build: Build) -> tuple[tuple[Any, Any], tuple[Any, Any]]:
    """((our graph, our result), (TensorFlow's graph, its result))."""
    with graphrt.Graph().as_default() as ours:
        our_result = build(graphrt)
    with tf.Graph().as_default() as theirs, _as_tensorflow_1(tf.compat.v1):
        their_result = build(tf.compat.v1)
    return (ours, our_result), (theirs, their_result)


def assert_same_nodes(tf: Any, build: Build) -> None:
    """Both graphs have the same nodes: names, types, inputs, control inputs and attrs."""
    (ours, _), (theirs, _) = built_by_both(tf, build)
    a, b = _nodes(tf, ours), _nodes(tf, theirs)
    missing, extra = sorted(set(b) - set(a)), sorted(set(a) - set(b))
    assert not missing and not extra, f"only TensorFlow makes {missing}; only graphrt makes {extra}"
    for name in a:
        assert a[name] == b[name], f"node {name}"


def _nodes(tf: Any, graph: Any) -> dict[str, Any]:
    message = tf.compat.v1.GraphDef.FromString(graph.as_graph_def().SerializeToString())
    return {
        n.name: {
            "op": n.op,
            "inputs": [i for i in n.input if i[0] != "^"],
            "waits for": sorted(i for i in n.input if i[0] == "^"),
            **{k: _attr(tf, v) for k, v in n.attr.items() if k not in _IGNORED},
        }
        for n in message.node
    }


def _attr(tf: Any, attr: Any) -> Any:
    if attr.WhichOneof("value") == "tensor":
        array = tf.make_ndarray(attr.tensor)
        return array.dtype.str, array.shape, array.tolist()
    return str(attr)


def assert_same_values(
    tf: Any,
    build: Build,
    feeds: dict[str, Any] | None = None,
    steps: int = 1,
    rtol: float = 1e-5,
    atol: float = 1e-6,
    initialize: bool = False,
) -> list[Any]:
    """Steps of both give the same values. Returns ours, of the last step, flat.

    Args:
      feeds: by the name of the placeholder's node.
      initialize: run global_variables_initializer first.
    """
    (ours, our_result), (theirs, their_result) = built_by_both(tf, build)
    a, b = tf.nest.flatten(our_result), tf.nest.flatten(their_result)
    a, b = [x for x in a if x is not None], [x for x in b if x is not None]
    made = []
    for module, graph, fetches in ((graphrt, ours, a), (tf.compat.v1, theirs, b)):
        with module.Session(graph=graph) as session:
            if initialize:
                with graph.as_default():
                    session.run(module.global_variables_initializer())
            feed = {f"{k}:0": v for k, v in (feeds or {}).items()}
            made.append([session.run(fetches, feed) for _ in range(steps)])
    for mine, wanted in zip(*made):
        assert len(mine) == len(wanted)
        for i, (x, y) in enumerate(zip(mine, wanted)):
            if y is None:
                continue
            x, y = np.asarray(x), np.asarray(y)
            assert x.dtype == y.dtype, f"result {i}: {x.dtype}, TensorFlow {y.dtype}"
            if x.dtype.kind in "fc":
                np.testing.assert_allclose(x, y, rtol=rtol, atol=atol, err_msg=f"result {i}")
            else:
                np.testing.assert_array_equal(x, y, err_msg=f"result {i}")
    return made[0][-1]
