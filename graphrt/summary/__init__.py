"""tf.summary: summaries as nodes, and writers that put them into event files for TensorBoard.

`nodes.py` builds the nodes (the ops are in `ops/summary_ops.py`), `writer.py` writes event files in the
background.
"""

from typing import Any as _Any

from graphrt.summary.nodes import (
    audio,
    get_summary_description,
    histogram,
    image,
    merge,
    merge_all,
    scalar,
    tensor_summary,
    text,
)
from graphrt.summary.writer import FileWriter, FileWriterCache, summary_iterator

_MESSAGES = {
    "Event": "event_pb2",
    "SessionLog": "event_pb2",
    "TaggedRunMetadata": "event_pb2",
    "Summary": "summary_pb2",
    "SummaryDescription": "summary_pb2",
}


def __getattr__(name: str) -> _Any:
    if name not in _MESSAGES:
        raise AttributeError(f"graphrt.summary has no attribute '{name}'")
    import importlib

    return getattr(importlib.import_module(f"graphrt.protos.{_MESSAGES[name]}"), name)
