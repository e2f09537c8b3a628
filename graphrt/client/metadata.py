"""RunMetadata: step statistics of a traced step, and the partitions that ran."""

from __future__ import annotations

from typing import Any

from graphrt.cluster.step_stats import fill_step_stats
from graphrt.compiler.graph_def import to_graph_def


def fill_metadata(metadata: Any, collected: Any, with_stats: bool, with_partitions: bool) -> None:
    """Write what a step left into a RunMetadata message.

    Args:
      metadata: the message; it is cleared first.
      collected: the step's Collected.
    """
    metadata.Clear()
    if collected.metadata is not None:  # a server's, or of other tasks
        metadata.MergeFromString(collected.metadata)
    if with_stats:
        fill_step_stats(metadata.step_stats, collected.records)
    if with_partitions and collected.compiled is not None:
        for partition in collected.compiled.partitions:
            metadata.partition_graphs.add().CopyFrom(to_graph_def(partition))
