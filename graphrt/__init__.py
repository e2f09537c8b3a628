"""graphrt: TensorFlow 1's graphs and sessions, as a small engine that can be read.

    import graphrt as tf

    x = tf.placeholder(tf.float32, [None, 3])
    y = tf.reduce_sum(x * 2.0)
    with tf.Session() as sess:
        print(sess.run(y, {x: [[1, 2, 3]]}))

What the names below stand for is in the modules that they come from. Namespaces and messages (`tf.train`,
`tf.nn`, `tf.ConfigProto`) are loaded when they are first used: a program pays for what it touches.
"""

import importlib as _importlib
import sys as _sys
from typing import Any as _Any

from graphrt import ops as _ops
from graphrt.api.array_api import *  # noqa: F403
from graphrt.api.math_api import *  # noqa: F403
from graphrt.api.random_api import *  # noqa: F403
from graphrt.api.variables_api import *  # noqa: F403
from graphrt.client.session import InteractiveSession, Session, get_default_session
from graphrt.control_flow.api import *  # noqa: F403
from graphrt.core import errors
from graphrt.core.convert import (
    convert_to_tensor,
    convert_to_tensor_or_indexed_slices,
    convert_to_tensor_or_sparse_tensor,
    is_tensor,
    register_tensor_conversion_function,
)
from graphrt.core.default_graph import (
    add_to_collection,
    add_to_collections,
    colocate_with,
    container,
    control_dependencies,
    device,
    get_collection,
    get_collection_ref,
    get_default_graph,
    name_scope,
    op_scope,
    reset_default_graph,
)
from graphrt.core.device_names import DeviceSpec
from graphrt.core.dtypes import (
    DType,
    as_dtype,
    bfloat16,
    complex64,
    complex128,
    double,
    float16,
    float32,
    float64,
    half,
    int8,
    int16,
    int32,
    int64,
    qint8,
    qint16,
    qint32,
    quint8,
    quint16,
    resource,
    string,
    uint8,
    uint16,
    uint32,
    uint64,
    variant,
)
from graphrt.core.dtypes import bool_ as bool
from graphrt.core.gradients import (
    AggregationMethod,
    NoGradient,
    NotDifferentiable,
    RegisterGradient,
    UnconnectedGradients,
    gradients,
    hessians,
    no_gradient,
)
from graphrt.core.graph import Graph
from graphrt.core.graph_def import import_graph_def
from graphrt.core.graph_keys import GraphKeys
from graphrt.core.operation import Operation
from graphrt.core.shapes import Dimension, TensorShape, broadcast_static_shape
from graphrt.core.tensor import IndexedSlices, SparseTensor, Tensor

__version__ = "0.1.0"
OpError = errors.OpError

# Attribute -> module, or (module, name): loaded at first use.
_LAZY: dict[str, _Any] = {
    **{
        name: ("graphrt.protos.config_pb2", name)
        for name in (
            "ConfigProto",
            "GPUOptions",
            "GraphOptions",
            "OptimizerOptions",
            "RunOptions",
            "RunMetadata",
        )
    },
    "AttrValue": ("graphrt.protos.attr_value_pb2", "AttrValue"),
    "NodeDef": ("graphrt.protos.node_def_pb2", "NodeDef"),
    "GraphDef": ("graphrt.protos.graph_pb2", "GraphDef"),
    "MetaGraphDef": ("graphrt.protos.meta_graph_pb2", "MetaGraphDef"),
    "Summary": ("graphrt.protos.summary_pb2", "Summary"),
    "HistogramProto": ("graphrt.protos.histogram_pb2", "HistogramProto"),
    "Event": ("graphrt.protos.event_pb2", "Event"),
    "make_tensor_proto": ("graphrt.core.tensor_proto", "make_tensor_proto"),
    "make_ndarray": ("graphrt.core.tensor_proto", "make_ndarray"),
    "get_static_value": ("graphrt.core.constant_value", "constant_value"),
    **{
        f"{name}_initializer": ("graphrt.initializers", name)
        for name in (
            "zeros",
            "ones",
            "constant",
            "random_uniform",
            "random_normal",
            "truncated_normal",
            "uniform_unit_scaling",
            "variance_scaling",
            "orthogonal",
            "glorot_uniform",
            "glorot_normal",
        )
    },
    **{
        name: ("graphrt.clip", name)
        for name in (
            "clip_by_value",
            "clip_by_norm",
            "clip_by_average_norm",
            "clip_by_global_norm",
            "global_norm",
        )
    },
    **{
        name: ("graphrt.checks", name)
        for name in (
            "Assert",
            "assert_equal",
            "assert_greater",
            "assert_greater_equal",
            "assert_integer",
            "assert_less",
            "assert_less_equal",
            "assert_near",
            "assert_negative",
            "assert_non_negative",
            "assert_non_positive",
            "assert_none_equal",
            "assert_positive",
            "assert_proper_iterable",
            "assert_rank",
            "assert_rank_at_least",
            "assert_rank_in",
            "assert_same_float_dtype",
            "assert_scalar",
            "assert_type",
            "is_non_decreasing",
            "is_numeric_tensor",
            "is_strictly_increasing",
            "verify_tensor_all_finite",
        )
    },
    "confusion_matrix": ("graphrt.api.confusion", "confusion_matrix"),
    "SparseTensorValue": ("graphrt.client.fetches", "SparseTensorValue"),
    "IndexedSlicesValue": ("graphrt.client.fetches", "IndexedSlicesValue"),
    "raw_ops": "graphrt.core.raw",
    **{
        name: ("graphrt.queue", name)
        for name in ("FIFOQueue", "PaddingFIFOQueue", "PriorityQueue", "QueueBase", "RandomShuffleQueue")
    },
    **{
        name: f"graphrt.{name}"
        for name in (
            "nn",
            "train",
            "losses",
            "initializers",
            "regularizers",
            "linalg",
            "strings",
            "random",
            "math",
            "sparse",
            "queue",
            "layers",
            "metrics",
            "image",
            "summary",
            "lookup",
            "data",
            "distribute",
            "saved_model",
            "estimator",
            "examples",
            "compat",
            "dtypes",
            "debugging",
            "gfile",
            "logging",
            "app",
            "flags",
            "python_io",
            "io",
            "test",
            "keras",
            "contrib",
            "graph_util",
            "sysconfig",
            "config",
            "version",
            "profiler",
            "bitwise",
            "sets",
            "signal",
            "spectral",
            "quantization",
            "autograph",
            "experimental",
            "manip",
            "user_ops",
            "resource_loader",
            "mixed_precision",
            "ragged",
            "types",
            "nest",
        )
    },
}


def __getattr__(name: str) -> _Any:
    place = _LAZY.get(name)
    if place is None:
        raise AttributeError(f"graphrt has no attribute '{name}'")
    try:
        if not isinstance(place, str):  # `tuple` is tf.tuple here
            made = getattr(_importlib.import_module(place[0]), place[1])
        else:
            made = _importlib.import_module(place)
    except ModuleNotFoundError as missing:
        if missing.name is not None and missing.name.startswith("graphrt"):
            raise AttributeError(f"graphrt has no attribute '{name}'") from None
        raise
    setattr(_sys.modules[__name__], name, made)
    return made


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY})


def executing_eagerly() -> bool:
    """False: programs build graphs."""
    return False


def disable_eager_execution() -> None:
    """Nothing to do: there is no eager execution."""


def disable_v2_behavior() -> None:
    """Nothing to do: this is TF1's behaviour."""


disable_v2_tensorshape = disable_tensor_equality = disable_v2_behavior
