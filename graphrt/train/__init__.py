"""tf.train: optimizers, moving averages, learning-rate decays, the global step. Names are loaded when first
used.

Read `optimizer.py` first: what every optimizer does; then any of them.
"""

import importlib as _importlib
import sys as _sys
from typing import Any as _Any

# Public name -> the module that has it.
_PLACES: dict[str, str] = {
    name: module
    for module, names in {
        "optimizer": ("Optimizer",),
        "gradient_descent": (
            "GradientDescentOptimizer",
            "MomentumOptimizer",
            "ProximalGradientDescentOptimizer",
        ),
        "adam": ("AdamOptimizer",),
        "adagrad": (
            "AdadeltaOptimizer",
            "AdagradDAOptimizer",
            "AdagradOptimizer",
            "ProximalAdagradOptimizer",
        ),
        "rmsprop": ("RMSPropOptimizer",),
        "ftrl": ("FtrlOptimizer",),
        "moving_averages": ("ExponentialMovingAverage",),
        "learning_rate_decay": (
            "cosine_decay",
            "cosine_decay_restarts",
            "exponential_decay",
            "inverse_time_decay",
            "linear_cosine_decay",
            "natural_exp_decay",
            "noisy_linear_cosine_decay",
            "piecewise_constant",
            "piecewise_constant_decay",
            "polynomial_decay",
        ),
        "training_util": (
            "assert_global_step",
            "create_global_step",
            "get_global_step",
            "get_or_create_global_step",
            "global_step",
        ),
        "server_lib": ("ClusterDef", "ClusterSpec", "JobDef", "Server", "ServerDef"),
        "device_setter": ("replica_device_setter",),
        "saver": ("Saver", "export_meta_graph", "import_meta_graph"),
        "saver_meta_graph": ("write_graph",),
        "checkpoint_state": (
            "checkpoint_exists",
            "checkpoints_iterator",
            "generate_checkpoint_state_proto",
            "get_checkpoint_mtimes",
            "get_checkpoint_state",
            "latest_checkpoint",
            "remove_checkpoint",
            "update_checkpoint_state",
        ),
        "checkpoint_reader": (
            "CheckpointReader",
            "NewCheckpointReader",
            "list_variables",
            "load_checkpoint",
            "load_variable",
        ),
        "checkpoint_init": ("init_from_checkpoint", "warm_start"),
        "graphrt.protos.saver_pb2": ("SaverDef",),
        "graphrt.protos.example_pb2": ("Example", "SequenceExample"),
        "graphrt.protos.feature_pb2": (
            "BytesList",
            "Feature",
            "FeatureList",
            "FeatureLists",
            "Features",
            "FloatList",
            "Int64List",
        ),
        "graphrt.summary": ("summary_iterator",),
    }.items()
    for name in names
}


def __getattr__(name: str) -> _Any:
    module = _PLACES.get(name)
    if module is None:
        raise AttributeError(f"graphrt.train has no attribute '{name}'")
    if not module.startswith("graphrt."):
        module = f"graphrt.train.{module}"
    made = getattr(_importlib.import_module(module), name)
    setattr(_sys.modules[__name__], name, made)
    return made


def __dir__() -> list[str]:
    return sorted({*globals(), *_PLACES})
