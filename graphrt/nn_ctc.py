"""Of tf.nn: connectionist temporal classification, for label sequences that are not aligned with their inputs."""

from __future__ import annotations

from typing import Any

from graphrt import array_api, math_api
from graphrt.core import raw
from graphrt.core.arguments import renamed
from graphrt.core.convert import convert_to_tensor
from graphrt.core.dtypes import bfloat16, float16, float32
from graphrt.core.tensor import SparseTensor, Tensor

__all__ = ["ctc_beam_search_decoder", "ctc_beam_search_decoder_v2", "ctc_greedy_decoder", "ctc_loss"]


def ctc_loss(labels: SparseTensor, inputs: Any = None, sequence_length: Any = None, preprocess_collapse_repeated: bool = False,
             ctc_merge_repeated: bool = True, ignore_longer_outputs_than_inputs: bool = False, time_major: bool = True,
             logits: Any = None) -> Tensor:
    """-log P(labels) under softmax(inputs), summed over all ways in which labels can lie along the input.

    Args:
      labels: int32 SparseTensor [batch, any]; class num_classes - 1 is the blank and is no label.
      inputs: logits [time, batch, classes], or [batch, time, classes] where not `time_major`; `logits` is its newer name.
      sequence_length: int32 [batch], the time steps of each example.
      preprocess_collapse_repeated: merge repeated labels first.
      ctc_merge_repeated: repeats of a label without a blank between them are one label.
      ignore_longer_outputs_than_inputs: an example with more labels than time steps has loss 0 and no gradient; else it is
        an InvalidArgumentError.
    Returns:
      Tensor [batch].
    Raises:
      TypeError: labels are not sparse.
    """
    if not isinstance(labels, SparseTensor):
        raise TypeError(f"Expected argument `labels` to be a SparseTensor. Received labels={labels} of type: {type(labels).__name__}")
    inputs = convert_to_tensor(renamed("logits", logits, "inputs", inputs), name="logits")
    if not time_major:
        inputs = array_api.transpose(inputs, [1, 0, 2])
    dtype = inputs.dtype.base_dtype
    is_short = dtype in (float16, bfloat16)
    if is_short:
        inputs = math_api.cast(inputs, float32)
    loss, _ = raw.CTCLoss(inputs, labels.indices, labels.values, sequence_length, preprocess_collapse_repeated=preprocess_collapse_repeated,
                          ctc_merge_repeated=ctc_merge_repeated, ignore_longer_outputs_than_inputs=ignore_longer_outputs_than_inputs)
    return math_api.cast(loss, dtype) if is_short else loss


def ctc_greedy_decoder(inputs: Any, sequence_length: Any, merge_repeated: bool = True,
                       blank_index: int | None = None) -> tuple[list[SparseTensor], Tensor]:
    """The labels of the most probable class at each time step.

    Args:
      inputs: logits [time, batch, classes].
      sequence_length: int32 [batch].
      merge_repeated: repeats of a class without a blank between them are one label.
      blank_index: the blank; the last class by default, and below 0 counted from the end.
    Returns:
      ([int64 SparseTensor [batch, longest]], minus the sum of the chosen logits [batch, 1]).
    """
    indices, values, shape, score = raw.CTCGreedyDecoder(inputs, sequence_length, merge_repeated=merge_repeated, blank_index=blank_index)
    return [SparseTensor(indices, values, shape)], score


def ctc_beam_search_decoder(inputs: Any, sequence_length: Any, beam_width: int = 100, top_paths: int = 1,
                            merge_repeated: bool = True) -> tuple[list[SparseTensor], Tensor]:
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
    indices, values, shapes, score = raw.CTCBeamSearchDecoder(inputs, sequence_length, beam_width=beam_width, top_paths=top_paths,
                                                              merge_repeated=merge_repeated)
    return [SparseTensor(i, v, s) for i, v, s in zip(indices, values, shapes)], score


def ctc_beam_search_decoder_v2(inputs: Any, sequence_length: Any, beam_width: int = 100,
                               top_paths: int = 1) -> tuple[list[SparseTensor], Tensor]:
    """ctc_beam_search_decoder without merging repeated labels."""
    return ctc_beam_search_decoder(inputs, sequence_length, beam_width=beam_width, top_paths=top_paths, merge_repeated=False)
