"""The nodes of summaries: each gives a serialized Summary message, which a FileWriter takes.

A summary's tag is the name of its node, so a name scope groups summaries; `family` comes before it.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from graphrt.core import raw
from graphrt.core.convert import convert_to_tensor
from graphrt.core.default_graph import get_default_graph, name_scope
from graphrt.core.dtypes import float32, string
from graphrt.core.graph_keys import GraphKeys
from graphrt.core.tensor import Tensor

_log = logging.getLogger("graphrt")
_NOT_IN_TAGS = re.compile(r"[^-/\w\.]")


def clean_tag(name: str | None) -> str | None:
    """A name as nodes may have it: other characters become '_', slashes in front go."""
    if name is None:
        return None
    made = _NOT_IN_TAGS.sub("_", name).lstrip("/")
    if made != name:
        _log.info("Summary name %s is illegal; using %s instead.", name, made)
    return made


@contextmanager
def summary_scope(
    name: str | None, family: str | None = None, default_name: str | None = None, values: Any = None
) -> Iterator[tuple[str, str]]:
    """(tag, scope) of a summary's node."""
    name, family = clean_tag(name), clean_tag(family)
    base = name if family is None else f"{family}/{name}"
    with name_scope(base, default_name, values) as scope:
        own = scope.rstrip("/")
        yield (own if family is None else f"{family}/{own}"), scope


def collect(value: Tensor, collections: Any, default_collections: list[str]) -> Tensor:
    for key in default_collections if collections is None else collections:
        get_default_graph().add_to_collection(key, value)
    return value


def scalar(name: str, tensor: Any, collections: Any = None, family: str | None = None) -> Tensor:
    """A summary of one number.

    Args:
      name: the node's name, and the series' in TensorBoard.
      tensor: a real scalar.
      collections: names of the collections that it joins, ['summaries'] by default. So for the others.
      family: a prefix of the tag: the tab in TensorBoard.
    Returns:
      A string scalar: a serialized Summary. So for the others.
    """
    with summary_scope(name, family, values=[tensor]) as (tag, scope):
        made = raw.ScalarSummary(tag, tensor, name=scope)
    return collect(made, collections, [GraphKeys.SUMMARIES])


def image(
    name: str, tensor: Any, max_outputs: int = 3, collections: Any = None, family: str | None = None
) -> Tensor:
    """A summary of pictures.

    Args:
      tensor: [batch, height, width, channels], of 1 (grey), 3 (RGB) or 4 (RGBA) channels: uint8, or floats,
        which are scaled into the range of pixels, picture by picture.
      max_outputs: how many of the batch are shown.
    """
    with summary_scope(name, family, values=[tensor]) as (tag, scope):
        made = raw.ImageSummary(tag, tensor, max_images=max_outputs, name=scope)
    return collect(made, collections, [GraphKeys.SUMMARIES])


def histogram(name: str, values: Any, collections: Any = None, family: str | None = None) -> Tensor:
    """A summary of how real numbers are distributed.

    Raises:
      InvalidArgumentError: at run time, a value that is not finite.
    """
    with summary_scope(name, family, "HistogramSummary", [values]) as (tag, scope):
        made = raw.HistogramSummary(tag, values, name=scope)
    return collect(made, collections, [GraphKeys.SUMMARIES])


def audio(
    name: str,
    tensor: Any,
    sample_rate: Any,
    max_outputs: int = 3,
    collections: Any = None,
    family: str | None = None,
) -> Tensor:
    """A summary of sounds.

    Args:
      tensor: [batch, frames] or [batch, frames, channels], in [-1, 1].
      sample_rate: in hertz.
      max_outputs: how many of the batch are kept.
    """
    with summary_scope(name, family, values=[tensor]) as (tag, scope):
        rate = convert_to_tensor(sample_rate, float32, "sample_rate")
        made = raw.AudioSummaryV2(tag, tensor, rate, max_outputs=max_outputs, name=scope)
    return collect(made, collections, [GraphKeys.SUMMARIES])


def tensor_summary(
    name: str,
    tensor: Any,
    summary_description: str | None = None,
    collections: Any = None,
    summary_metadata: Any = None,
    family: str | None = None,
    display_name: str | None = None,
) -> Tensor:
    """A summary of a tensor of any dtype and shape, for plugins of TensorBoard.

    Args:
      summary_description: a text, in Markdown.
      summary_metadata: a SummaryMetadata message: which plugin it is for.
      display_name: the name that is shown in place of the tag.
    """
    from graphrt.protos import summary_pb2

    metadata = summary_pb2.SummaryMetadata()
    if summary_metadata is not None:
        metadata.MergeFromString(summary_metadata.SerializeToString())
    if summary_description is not None:
        metadata.summary_description = summary_description
    if display_name is not None:
        metadata.display_name = display_name
    with summary_scope(name, family, values=[tensor]) as (tag, scope):
        made = raw.TensorSummaryV2(tag, tensor, metadata.SerializeToString(), name=scope)
    return collect(made, collections, [GraphKeys.SUMMARIES])


def text(name: str, tensor: Any, collections: Any = None) -> Tensor:
    """A summary of text, in Markdown; vectors and matrices are shown as tables.

    Raises:
      ValueError: the tensor is not of strings.
    """
    from graphrt.protos import summary_pb2

    if tensor.dtype.base_dtype is not string:
        raise ValueError(f"Expected tensor {tensor.name} to have dtype string, got {tensor.dtype}")
    metadata = summary_pb2.SummaryMetadata()
    metadata.plugin_data.plugin_name = "text"
    return tensor_summary(name, tensor, collections=collections, summary_metadata=metadata)


def merge(inputs: Any, collections: Any = None, name: str | None = None) -> Tensor:
    """One summary with the values of all.

    Raises:
      InvalidArgumentError: at run time, two have one tag.
    """
    name = clean_tag(name)
    with name_scope(name, "Merge", inputs):
        made = raw.MergeSummary(inputs, name=name)
    return collect(made, collections, [])


def merge_all(
    key: str = GraphKeys.SUMMARIES, scope: str | None = None, name: str | None = None
) -> Tensor | None:
    """One summary with the values of all of a collection; None where it is empty.

    Args:
      scope: only those whose names it matches, as a regular expression.
    """
    found = get_default_graph().get_collection(key, scope)
    return merge(found, name=name) if found else None


def get_summary_description(node_def: Any) -> Any:
    """The SummaryDescription in a TensorSummary node's `description`.

    Raises:
      ValueError: the node is another op's.
    """
    from google.protobuf import json_format

    from graphrt.protos import summary_pb2

    if node_def.op != "TensorSummary":
        raise ValueError(f"Can't get_summary_description on {node_def.op}")
    made = summary_pb2.SummaryDescription()
    json_format.Parse(node_def.attr["description"].s.decode(), made)
    return made
