"""ConfigProto and RunOptions: the fields that mean something here, and one warning that names those that do
not."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

# Fields of ConfigProto that are honoured; of others that are set, one warning tells.
_HONOURED = frozenset(
    (
        "device_count",
        "allow_soft_placement",
        "log_device_placement",
        "operation_timeout_in_ms",
        "graph_options",
        "cluster_def",
        "isolate_session_state",
        "device_filters",
        "intra_op_parallelism_threads",
        "inter_op_parallelism_threads",
        "gpu_options",
        "experimental",
        "use_per_session_threads",
    )
)
_warned: set[str] = set()


@dataclass
class SessionOptions:
    """What a session takes from its ConfigProto.

    Attributes:
      cpus, gpus: devices; gpus None is all there are.
      timeout: seconds of `operation_timeout_in_ms`, or None.
      log_placement: print where each node is put.
      proto: the ConfigProto itself, for the compiler and for servers; None without one.
    """

    cpus: int = 1
    gpus: int | None = None
    timeout: float | None = None
    log_placement: bool = False
    proto: Any = None


def read_config(config: Any) -> SessionOptions:
    """The options of a ConfigProto (ours or TensorFlow's), or defaults for None.

    Raises:
      TypeError: it is not a ConfigProto.
    """
    if config is None:
        return SessionOptions()
    if not hasattr(config, "device_count") or not hasattr(config, "ListFields"):
        raise TypeError(f"config must be a tf.ConfigProto, but got {type(config)}")
    ignored = [f.name for f, _ in config.ListFields() if f.name not in _HONOURED]
    new = [f for f in ignored if f not in _warned]
    if new:
        _warned.update(new)
        warnings.warn(
            f"these ConfigProto fields mean nothing in graphrt and are ignored: {', '.join(new)}",
            stacklevel=4,
        )
    return SessionOptions(
        cpus=config.device_count.get("CPU", 1) if "CPU" in config.device_count else 1,
        gpus=config.device_count["GPU"] if "GPU" in config.device_count else None,
        timeout=config.operation_timeout_in_ms / 1e3 if config.operation_timeout_in_ms > 0 else None,
        log_placement=config.log_device_placement,
        proto=config,
    )


def run_timeout(options: Any, default: float | None) -> float | None:
    """Seconds of RunOptions.timeout_in_ms, else the session's."""
    if options is not None and options.timeout_in_ms > 0:
        return options.timeout_in_ms / 1e3
    return default


def wants_trace(options: Any) -> bool:
    """True for SOFTWARE_TRACE and FULL_TRACE."""
    return options is not None and options.trace_level in (1, 3)
