"""Of tf.nn: connectionist temporal classification, for label sequences that are not aligned with their
inputs."""

from __future__ import annotations

from typing import Any

from graphrt.api import array_api, math_api
from graphrt.core import raw
from graphrt.core.arguments import renamed
from graphrt.core.convert import convert_to_tensor
from graphrt.core.default_graph import name_scope
from graphrt.core.dtypes import bfloat16, float16, float32, int32, int64
from graphrt.core.tensor import SparseTensor, Tensor

__all__ = [
    "ctc_beam_search_decoder",
    "ctc_beam_search_decoder_v2",
    "ctc_greedy_decoder",
    "ctc_loss",
    "ctc_loss_v2",
]


def ctc_loss(
    labels: SparseTensor,
    inputs: Any = None,
    sequence_length: Any = None,
    preprocess_collapse_repeated: bool = False,
    ctc_merge_repeated: bool = True,
    ignore_longer_outputs_than_inputs: bool = False,
    time_major: bool = True,
    logits: Any = None,
) -> Tensor:
    """-log P(labels) under softmax(inputs), summed over all ways in which labels can lie along the input.

    Args:
      labels: int32 SparseTensor [batch, any]; class num_classes - 1 is the blank and is no label.
      inputs: logits [time, batch, classes], or [batch, time, classes] where not `time_major`; `logits` is its
        newer name.
      sequence_length: int32 [batch], the time steps of each example.
      preprocess_collapse_repeated: merge repeated labels first.
      ctc_merge_repeated: repeats of a label without a blank between them are one label.
      ignore_longer_outputs_than_inputs: an example with more labels than time steps has loss 0 and no
        gradient; else it is an InvalidArgumentError.
    Returns:
      Tensor [batch].
    Raises:
      TypeError: labels are not sparse.
    """
    if not isinstance(labels, SparseTensor):
        raise TypeError(
            f"Expected argument `labels` to be a SparseTensor. Received labels={labels} of type: "
            f"{type(labels).__name__}"
        )
    inputs = convert_to_tensor(renamed("logits", logits, "inputs", inputs), name="logits")
    if not time_major:
        inputs = array_api.transpose(inputs, [1, 0, 2])
    dtype = inputs.dtype.base_dtype
    is_short = dtype in (float16, bfloat16)
    if is_short:
        inputs = math_api.cast(inputs, float32)
    loss, _ = raw.CTCLoss(
        inputs,
        labels.indices,
        labels.values,
        sequence_length,
        preprocess_collapse_repeated=preprocess_collapse_repeated,
        ctc_merge_repeated=ctc_merge_repeated,
        ignore_longer_outputs_than_inputs=ignore_longer_outputs_than_inputs,
    )
    return math_api.cast(loss, dtype) if is_short else loss


def ctc_loss_v2(
    labels: Any,
    logits: Any,
    label_length: Any,
    logit_length: Any,
    logits_time_major: bool = True,
    unique: Any = None,
    blank_index: int | None = None,
    name: str | None = None,
) -> Tensor:
    """ctc_loss of dense labels, or with another class as the blank.

    Args:
      labels: int32 [batch, longest], or a SparseTensor. Every example needs a label.
      logits: [time, batch, classes], or [batch, time, classes] where not `logits_time_major`.
      label_length: int32 [batch], how many of an example's labels count; not used where labels are sparse.
      logit_length: int32 [batch], the time steps of each example.
      unique: not used.
      blank_index: below 0 it counts from the end; 0 by default, and to be given where labels are sparse.
    Returns:
      Tensor [batch].
    """
    is_sparse = isinstance(labels, SparseTensor)
    if blank_index is None:
        if is_sparse:
            raise ValueError("Argument `blank_index` must be provided when labels is a SparseTensor.")
        blank_index = 0
    with name_scope(name, "ctc_loss", [logits, label_length, logit_length]):
        logits = convert_to_tensor(logits, name="logits")
        if not is_sparse:
            labels = _sparse(convert_to_tensor(labels, name="labels"), label_length)
        classes = logits.shape[2].value
        if classes is None:
            raise ValueError(
                f"ctc_loss_v2 needs to know the number of classes, and logits have shape {logits.shape}"
            )
        blank = blank_index % classes
        if blank != classes - 1:
            # The kernel's blank is the last class.
            logits = array_api.concat(
                [logits[:, :, :blank], logits[:, :, blank + 1 :], logits[:, :, blank : blank + 1]], axis=2
            )
            values = array_api.where(labels.values < blank, labels.values, labels.values - 1)
            labels = SparseTensor(labels.indices, values, labels.dense_shape)
        return ctc_loss(labels, logits, logit_length, time_major=logits_time_major)


def _sparse(labels: Tensor, lengths: Any) -> SparseTensor:
    """The first `lengths` labels of each row."""
    labels = math_api.cast(labels, int32)
    shape = array_api.shape(labels, out_type=int64)
    places = array_api.where(array_api.sequence_mask(lengths, shape[1]))
    return SparseTensor(places, array_api.gather_nd(labels, places), shape)


def ctc_greedy_decoder(
    inputs: Any, sequence_length: Any, merge_repeated: bool = True, blank_index: int | None = None
) -> tuple[list[SparseTensor], Tensor]:
    """The labels of the most probable class at each time step.

    Args:
      inputs: logits [time, batch, classes].
      sequence_length: int32 [batch].
      merge_repeated: repeats of a class without a blank between them are one label.
      blank_index: the blank; the last class by default, and below 0 counted from the end.
    Returns:
      ([int64 SparseTensor [batch, longest]], minus the sum of the chosen logits [batch, 1]).
    """
    indices, values, shape, score = raw.CTCGreedyDecoder(
        inputs, sequence_length, merge_repeated=merge_repeated, blank_index=blank_index
    )
    return [SparseTensor(indices, values, shape)], score


def ctc_beam_search_decoder(
    inputs: Any, sequence_length: Any, beam_width: int = 100, top_paths: int = 1, merge_repeated: bool = True
) -> tuple[list[SparseTensor], Tensor]:
    """The most probable label sequences, as far as a beam search finds them.

    Args:
      inputs: logits [time, batch, classes], the blank last.
      sequence_length: int32 [batch].
      beam_width: how many prefixes are kept at each time step.
      top_paths: how many sequences to return.
      merge_repeated: merge repeated labels of the result.
    Returns:
      (top_paths int64 SparseTensors [batch, longest], log-probabilities [batch, top_paths]).
    """
    indices, values, shapes, score = raw.CTCBeamSearchDecoder(
        inputs, sequence_length, beam_width=beam_width, top_paths=top_paths, merge_repeated=merge_repeated
    )
    return [SparseTensor(i, v, s) for i, v, s in zip(indices, values, shapes)], score


def ctc_beam_search_decoder_v2(
    inputs: Any, sequence_length: Any, beam_width: int = 100, top_paths: int = 1
) -> tuple[list[SparseTensor], Tensor]:
    """ctc_beam_search_decoder without merging repeated labels."""
    return ctc_beam_search_decoder(
        inputs, sequence_length, beam_width=beam_width, top_paths=top_paths, merge_repeated=False
    )
