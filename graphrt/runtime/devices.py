"""Devices: where kernels run and which memory they see.

CPU:i   NumPy.
GPU:i   CuPy, where it is installed and finds a device; or, with GRAPHRT_SIM_GPUS=n, NumPy behind a
separate memory
        space that refuses host arrays (`sim_gpu.py`), so placement, copies and multi-GPU programs run
        anywhere.
"""

from __future__ import annotations

import os
import random
from typing import Any

import numpy as np

from graphrt.core.registry import ALL, OpDef


class Device:
    """A device of this process.

    Attributes:
      name: full name, as /job:localhost/replica:0/task:0/device:CPU:0.
      type: 'CPU' or 'GPU'.
      index: its number among its type.
      incarnation: random 63 bits, new at every start: stale peers are told by it.
      memory_limit: bytes.
      xp: the array module of its kernels.
    """

    type = "CPU"
    is_host = True

    def __init__(self, name: str, index: int, memory_limit: int = 256 << 20) -> None:
        self.name, self.index, self.memory_limit = name, index, memory_limit
        self.incarnation = random.SystemRandom().getrandbits(62) + 1
        self.xp: Any = np
        self.description = ""

    def supports(self, op_def: OpDef, dtypes: list[Any] | None = None) -> bool:
        """True where there is a kernel of the op for this device type (and the dtypes of its type attrs)."""
        return True

    def from_host(self, array: Any) -> Any:
        """The array in this device's memory."""
        return array

    def to_host(self, array: Any) -> Any:
        """A NumPy array of a value in this device's memory."""
        return array

    def __repr__(self) -> str:
        return f"<{self.name}>"


class AcceleratorDevice(Device):
    """A device with memory of its own."""

    type = "GPU"
    is_host = False

    def supports(self, op_def: OpDef, dtypes: list[Any] | None = None) -> bool:
        if op_def.cpu_only or op_def.blocking:
            return False
        # Objects (strings, queues' and tables' resources) live on the host.
        return not any(d.name == "string" for d in dtypes or ())


def host_arguments(fact: Any, op_def: OpDef, count: int) -> tuple[int, ...]:
    """The flat positions that a `host_inputs` or `host_outputs` fact names, of `count`; negative ones count
    from the end."""
    return tuple(range(count)) if fact == ALL else tuple([p % count for p in fact])


def make_devices(
    prefix: str = "/job:localhost/replica:0/task:0", cpus: int = 1, gpus: int | None = None
) -> list[Device]:
    """The devices of a task: `cpus` CPU devices, and `gpus` GPUs (all that there are where None)."""
    made: list[Device] = [Device(f"{prefix}/device:CPU:{i}", i) for i in range(max(cpus, 1))]
    simulated = int(os.environ.get("GRAPHRT_SIM_GPUS", "0") or 0)
    if simulated:
        from graphrt.runtime.sim_gpu import SimulatedGpu

        n = simulated if gpus is None else min(gpus, simulated)
        made += [SimulatedGpu(f"{prefix}/device:GPU:{i}", i) for i in range(n)]
    elif gpus is None or gpus > 0:
        made += _cupy_devices(prefix, gpus)
    return made


def _cupy_devices(prefix: str, wanted: int | None) -> list[Device]:
    import importlib.util

    if importlib.util.find_spec("cupy") is None:
        return []
    from graphrt.runtime.gpu import CupyGpu, device_count

    n = device_count()
    return [CupyGpu(f"{prefix}/device:GPU:{i}", i) for i in range(n if wanted is None else min(n, wanted))]
