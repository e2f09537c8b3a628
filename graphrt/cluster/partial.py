"""Partial runs: feeds that come in later calls wait as nodes do."""

from __future__ import annotations

from graphrt.compiler.pipeline import CompiledStep
from graphrt.core.registry import OPS


def defer_args(compiled: CompiledStep) -> None:
    """Turn the feeds of a compiled step into nodes that wait for `PartialStep.advance`."""
    deferred = OPS["_DeferredArg"]
    for partition in compiled.partitions:
        for node in partition.graph.args:
            node.op_def, node.type = deferred, deferred.name
            node.attrs = {"T": node.dtypes[0].base_dtype, "index": node.attrs["index"]}
        partition.graph.args = []
