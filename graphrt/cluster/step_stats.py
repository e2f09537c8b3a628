"""StepStats of the kernels that a traced step timed."""

from __future__ import annotations

from time import perf_counter_ns, time_ns
from typing import Any

import numpy as np

from graphrt.core.dtypes import of_array


def fill_step_stats(stats: Any, records: list[tuple[str, Any, int, int, Any]]) -> None:
    """Write (device, node, start ns, end ns, outputs) of each kernel into a StepStats message."""
    if not records:
        return
    by_device: dict[str, Any] = {}
    # Kernels are timed by a clock without a date; traces want microseconds since the epoch.
    offset = time_ns() - perf_counter_ns()
    for device, node, start, end, outputs in records:
        entry = by_device.get(device)
        if entry is None:
            entry = by_device[device] = stats.dev_stats.add(device=device)
        made = entry.node_stats.add(
            node_name=node.name,
            all_start_micros=(start + offset) // 1000,
            op_end_rel_micros=(end - start) // 1000,
            all_end_rel_micros=(end - start) // 1000,
            all_start_nanos=start + offset,
            op_end_rel_nanos=end - start,
            all_end_rel_nanos=end - start,
            scheduled_micros=(start + offset) // 1000,
            scheduled_nanos=start + offset,
            timeline_label=f"{node.name} = {node.type}({', '.join(s.name for s, _ in node.inputs)})",
        )
        values = outputs if isinstance(outputs, tuple) else (outputs,)
        for slot, value in enumerate(values):
            if isinstance(value, (np.ndarray, np.generic)):
                _describe_output(made.output.add(slot=slot).tensor_description, np.asarray(value))


def _describe_output(description: Any, array: np.ndarray) -> None:
    description.dtype = of_array(array).number
    for size in array.shape:
        description.shape.dim.add(size=size)
    description.allocation_description.requested_bytes = array.nbytes
    description.allocation_description.allocated_bytes = array.nbytes
    description.allocation_description.allocator_name = "cpu"
