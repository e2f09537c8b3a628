"""Summaries: serialized Summary messages, which a FileWriter puts into event files and TensorBoard shows.

The bytes are TensorFlow's, but for images: those are PNG files of the same pixels.
"""

from __future__ import annotations

import struct
import sys
import zlib
from typing import Any

import numpy as np

from graphrt.core.dtypes import (
    DType,
    bfloat16,
    float16,
    float32,
    float64,
    int8,
    int16,
    int32,
    int64,
    string,
    uint8,
    uint16,
    uint32,
    uint64,
)
from graphrt.core.errors import InvalidArgumentError
from graphrt.core.registry import ALL, KernelContext, ShapeContext, op
from graphrt.core.samples import bools, empty, ints, normal, sample, text
from graphrt.core.shapes import SCALAR, TensorShape
from graphrt.core.signature import Attr
from graphrt.ops.strings import scalar_text

REAL = (float32, float64, int32, uint8, int16, int8, int64, bfloat16, uint16, float16, uint32, uint64)
_RED = np.array([255, 0, 0, 255], np.uint8)


class _Summary:
    """What the ops of this file share: a string scalar of host values."""

    cpu_only = True
    not_differentiable = True
    host_inputs = ALL
    host_outputs = ALL

    def shape(self, s: ShapeContext, *inputs: Any) -> TensorShape:
        return SCALAR


def _new() -> Any:
    from graphrt.protos import summary_pb2

    return summary_pb2.Summary()


def _serialized(summary: Any) -> Any:
    return scalar_text(summary.SerializeToString())


def _tag(tag: Any) -> str:
    if tag.shape != ():
        raise InvalidArgumentError(None, None, f"tag must be a scalar, not of shape {list(tag.shape)}")
    return tag.item().decode("utf-8", "replace")


@op("ScalarSummary(tags: string, values: T) -> summary: string", T=REAL)
class ScalarSummary(_Summary):
    """One value for each tag."""

    samples = [
        sample(text("loss").reshape(()), normal()),
        sample(text("a", "b"), ints(2)),
        sample(text("nan"), np.array([np.nan])),
    ]

    def compute(self, k: KernelContext, tags: Any, values: Any) -> Any:
        if tags.shape != values.shape:
            raise InvalidArgumentError(
                None,
                None,
                f"tags and values are not the same shape: {list(tags.shape)} != {list(values.shape)}"
                + (f" (tag '{tags.item().decode(errors='replace')}')" if tags.size == 1 else ""),
            )
        made = _new()
        for tag, value in zip(
            tags.reshape(-1).tolist(), np.asarray(values).reshape(-1).astype(np.float32).tolist()
        ):
            made.value.add(tag=tag.decode("utf-8", "replace"), simple_value=value)
        return _serialized(made)


# -- histograms
# ------------------------------------------------------------------------------------------------


def _bucket_limits() -> np.ndarray:
    """Where buckets end: in steps of a tenth from 1e-12 to 1e20, their negatives, 0, and the largest
    number."""
    positive, limit = [], 1e-12
    while limit < 1e20:
        positive.append(limit)
        limit *= 1.1
    positive.append(sys.float_info.max)
    return np.array([-v for v in reversed(positive)] + [0.0] + positive)


_limits: list[np.ndarray] = []


def _running_sum(values: np.ndarray) -> float:
    """The sum in the values' order, as TensorFlow adds them; NumPy's own sum adds in another."""
    total = 0.0
    for at in range(0, values.size, 1 << 16):
        piece = values[at : at + (1 << 16)].copy()
        piece[0] += total
        total = float(np.cumsum(piece, out=piece)[-1])
    return total


def fill_histogram(into: Any, values: np.ndarray) -> None:
    """Write the histogram of a float64 vector into a HistogramProto."""
    if not _limits:
        _limits.append(_bucket_limits())
    limits = _limits[0]
    largest = sys.float_info.max
    into.min, into.max = (float(values.min()), float(values.max())) if values.size else (largest, -largest)
    into.num, into.sum = values.size, _running_sum(values)
    with np.errstate(over="ignore"):
        into.sum_squares = _running_sum(values * values)
    found = np.minimum(np.searchsorted(limits, values, side="right"), limits.size - 1)
    counts = np.bincount(found, minlength=limits.size)
    # Buckets that are empty are one with the empty ones after them.
    is_last = (counts > 0) | np.append(counts[1:] > 0, True)
    into.bucket_limit.extend(limits[is_last].tolist())
    into.bucket.extend(counts[is_last].astype(np.float64).tolist())


@op(
    "HistogramSummary(tag: string, values: T) -> summary: string",
    T=Attr("T", "type", allowed=REAL, default=float32),
)
class HistogramSummary(_Summary):
    """The histogram of `values`, in fixed buckets whose widths grow by a tenth."""

    samples = [
        sample(text("h").reshape(()), normal(100)),
        sample(text("h").reshape(()), normal(3, 5, dtype="float64") * 1e6),
        sample(text("h").reshape(()), ints(20, low=-3, high=3, dtype="int64")),
        sample(text("h").reshape(()), empty(0)),
        sample(text("h").reshape(()), normal(8, dtype="bfloat16")),
    ]

    def compute(self, k: KernelContext, tag: Any, values: Any) -> Any:
        flat = np.asarray(values).reshape(-1).astype(np.float64)
        name = _tag(tag)
        if not np.isfinite(flat).all():
            what = "Nan" if np.isnan(flat).any() else "Infinity"
            raise InvalidArgumentError(None, None, f"{what} in summary histogram for: {k.name}")
        made = _new()
        value = made.value.add(tag=name)
        fill_histogram(value.histo, flat)
        return _serialized(made)


# -- images
# ----------------------------------------------------------------------------------------------------

# Channels to a PNG file's colour type: grey, RGB, RGBA.
_COLOUR_TYPES = {1: 0, 3: 2, 4: 6}


def png(pixels: np.ndarray) -> bytes:
    """A PNG file of uint8 pixels [height, width, channels], of 1 (grey), 3 (RGB) or 4 (RGBA) channels."""
    height, width, channels = pixels.shape

    def chunk(kind: bytes, content: bytes) -> bytes:
        return (
            struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
        )

    # Each row begins with its filter; "up", the difference to the row above, packs pictures well.
    rows = np.empty((height, 1 + width * channels), np.uint8)
    flat = pixels.reshape(height, width * channels)
    rows[:, 0] = 2
    rows[:1, 1:] = flat[:1]
    np.subtract(flat[1:], flat[:-1], out=rows[1:, 1:])
    header = struct.pack(">IIBBBBB", width, height, 8, _COLOUR_TYPES[channels], 0, 0, 0)
    return b"".join(
        (
            b"\x89PNG\r\n\x1a\n",
            chunk(b"IHDR", header),
            chunk(b"IDAT", zlib.compress(rows.tobytes())),
            chunk(b"IEND", b""),
        )
    )


def pixels_of(image: np.ndarray, bad_color: np.ndarray) -> np.ndarray:
    """uint8 pixels of a float image [height, width, channels].

    Values that are all positive are scaled so that the largest is 255; with negative ones among them 0
    becomes 128, and the largest magnitude 127 away from it. Pixels that are not finite get `bad_color`.
    """
    is_fine = np.isfinite(image.astype(np.float32)).all(axis=-1)
    fine = image[is_fine]
    made = np.empty(image.shape, np.uint8)
    made[~is_fine] = bad_color[: image.shape[-1]]
    if fine.size:
        low, high = float(fine.min()), float(fine.max())
        span = max(abs(low), abs(high)) if low < 0 else high
        steps = np.float32(127.0 if low < 0 else 255.0)
        kind = image.dtype.type
        scale = kind(0) if span < 1e-6 else kind(steps / np.float32(span))
        made[is_fine] = (fine * scale + kind(128.0 if low < 0 else 0.0)).astype(np.uint8)
    return made


@op(
    "ImageSummary(tag: string, tensor: T) -> summary: string",
    max_images="int >= 1 = 3",
    T=Attr("T", "type", allowed=(uint8, float32, float16, float64), default=float32),
    bad_color=Attr("bad_color", "tensor", default=_RED),
)
class ImageSummary(_Summary):
    """Pictures of [batch, height, width, channels], at most `max_images`; floats are scaled into the range
    of pixels."""

    # Pixels are TensorFlow's, which a test holds; the PNG files that hold them are packed in another way.
    samples = [
        sample(text("i").reshape(()), normal(4, 3, 5, 3), tensorflow=False),
        sample(
            text("i").reshape(()), ints(2, 3, 5, 1, high=256, dtype="uint8"), max_images=1, tensorflow=False
        ),
    ]

    def shape(self, s: ShapeContext, tag: Any, tensor: Any) -> TensorShape:
        tensor.with_rank(4)
        return SCALAR

    def compute(self, k: KernelContext, tag: Any, tensor: Any) -> Any:
        bad_color = k.attrs["bad_color"]
        if tensor.ndim != 4 or tensor.shape[3] not in _COLOUR_TYPES:
            raise InvalidArgumentError(
                None,
                None,
                f"Tensor must be 4-D with last dim 1, 3, or 4, not {list(tensor.shape)}: a batch of grey, "
                "RGB or RGBA "
                "pictures",
            )
        channels = tensor.shape[3]
        if bad_color.dtype != np.uint8 or bad_color.ndim != 1 or bad_color.size < channels:
            raise InvalidArgumentError(
                None,
                None,
                f"bad_color must be a uint8 vector of at least {channels}, not {bad_color.dtype} "
                f"{list(bad_color.shape)}",
            )
        name, most = _tag(tag), k.attrs["max_images"]
        made = _new()
        for i, image in enumerate(tensor[:most]):
            pixels = image if image.dtype == np.uint8 else pixels_of(image, bad_color)
            value = made.value.add(tag=f"{name}/image/{i}" if most > 1 else f"{name}/image")
            value.image.height, value.image.width, value.image.colorspace = image.shape
            value.image.encoded_image_string = png(pixels)
        return _serialized(made)


# -- audio
# -----------------------------------------------------------------------------------------------------


def wav(samples: np.ndarray, sample_rate: int) -> bytes:
    """A WAV file of float samples [frames, channels] in [-1, 1], as 16-bit integers."""
    frames, channels = samples.shape
    scaled = samples.astype(np.float32) * np.float32(32768)
    # Halves go away from zero.
    rounded = np.clip(np.trunc(scaled + np.copysign(np.float32(0.5), scaled)), -32768, 32767)
    content = rounded.astype("<i2").tobytes()
    bytes_a_frame = 2 * channels
    return (
        struct.pack(
            "<4sI4s4sIHHIIHH4sI",
            b"RIFF",
            36 + len(content),
            b"WAVE",
            b"fmt ",
            16,
            1,
            channels,
            sample_rate,
            sample_rate * bytes_a_frame,
            bytes_a_frame,
            16,
            b"data",
            len(content),
        )
        + content
    )


def _audio(k: KernelContext, tag: Any, tensor: Any, sample_rate: float) -> Any:
    if tensor.ndim not in (2, 3):
        raise InvalidArgumentError(
            None,
            None,
            f"Tensor must be 3-D or 2-D, got: {list(tensor.shape)}: [batch, frames] or [batch, frames, "
            "channels]",
        )
    if not sample_rate > 0:
        raise InvalidArgumentError(None, None, f"sample_rate must be > 0, not {sample_rate}")
    name, most = _tag(tag), k.attrs["max_outputs"]
    clips = tensor if tensor.ndim == 3 else tensor[:, :, None]
    made = _new()
    for i, clip in enumerate(clips[:most]):
        value = made.value.add(tag=f"{name}/audio/{i}" if most > 1 else f"{name}/audio")
        value.audio.sample_rate = sample_rate
        value.audio.length_frames, value.audio.num_channels = clip.shape
        value.audio.content_type = "audio/wav"
        value.audio.encoded_audio_string = wav(clip, int(np.rint(sample_rate)))
    return _serialized(made)


def _check_audio_rank(tensor: TensorShape) -> None:
    tensor.with_rank_at_least(2)
    tensor.with_rank_at_most(3)


@op(
    "AudioSummary(tag: string, tensor: float) -> summary: string",
    sample_rate="float",
    max_outputs="int >= 1 = 3",
)
class AudioSummary(_Summary):
    """Sounds of [batch, frames] or [batch, frames, channels], at most `max_outputs`, as WAV files."""

    # TensorFlow refuses to build it.
    samples = [sample(text("a").reshape(()), normal(2, 8, 2), sample_rate=44100.0, tensorflow=False)]

    def shape(self, s: ShapeContext, tag: Any, tensor: Any) -> TensorShape:
        _check_audio_rank(tensor)
        return SCALAR

    def compute(self, k: KernelContext, tag: Any, tensor: Any) -> Any:
        return _audio(k, tag, tensor, k.attrs["sample_rate"])


@op(
    "AudioSummaryV2(tag: string, tensor: float, sample_rate: float) -> summary: string",
    max_outputs="int >= 1 = 3",
)
class AudioSummaryV2(_Summary):
    """AudioSummary with the sample rate as a tensor."""

    samples = [
        sample(text("a").reshape(()), normal(5, 8, 2) * 0.5, np.float32(16000).reshape(())),
        sample(text("a").reshape(()), normal(2, 9), np.float32(8000.5).reshape(()), max_outputs=1),
    ]

    def shape(self, s: ShapeContext, tag: Any, tensor: Any, sample_rate: Any) -> TensorShape:
        _check_audio_rank(tensor)
        sample_rate.with_rank(0)
        return SCALAR

    def compute(self, k: KernelContext, tag: Any, tensor: Any, sample_rate: Any) -> Any:
        return _audio(k, tag, tensor, float(sample_rate))


# -- tensors
# ---------------------------------------------------------------------------------------------------


def _fill_tensor(into: Any, tensor: Any, dtype: DType) -> None:
    array = np.asarray(tensor)
    into.dtype = dtype.base_dtype.number
    into.tensor_shape.SetInParent()
    for size in array.shape:
        into.tensor_shape.dim.add(size=size)
    if dtype.base_dtype is string:
        into.string_val.extend(array.reshape(-1).tolist())
    elif dtype.is_object:
        raise InvalidArgumentError(None, None, f"a {dtype.name} tensor has no summary")
    else:
        into.tensor_content = np.ascontiguousarray(array).tobytes()


@op(
    "TensorSummary(tensor: T) -> summary: string",
    T="type",
    description="string = ''",
    labels="list(string) = []",
    display_name="string = ''",
)
class TensorSummary(_Summary):
    """A tensor of any type, under the node's name. TensorSummaryV2 has a tag, and replaces it."""

    samples = [sample(normal(2, 3)), sample(text("a", "b"))]

    def compute(self, k: KernelContext, tensor: Any) -> Any:
        made = _new()
        value = made.value.add(node_name=k.name)
        _fill_tensor(value.tensor, tensor, k.input_dtypes[0])
        return _serialized(made)


@op(
    "TensorSummaryV2(tag: string, tensor: T, serialized_summary_metadata: string) -> summary: string",
    T="type",
)
class TensorSummaryV2(_Summary):
    """A tensor of any type under a tag, with what the plugins of TensorBoard need to know of it."""

    samples = [
        sample(text("t").reshape(()), normal(2, 3), text(b"\x12\x01d").reshape(())),
        sample(text("t").reshape(()), text("a", ""), text("").reshape(())),
        sample(text("t").reshape(()), bools(), text("").reshape(())),
    ]

    def compute(self, k: KernelContext, tag: Any, tensor: Any, serialized_summary_metadata: Any) -> Any:
        from google.protobuf.message import DecodeError

        made = _new()
        value = made.value.add(tag=_tag(tag))
        try:
            value.metadata.ParseFromString(serialized_summary_metadata.item())
        except DecodeError:
            raise InvalidArgumentError(
                None, None, "serialized_summary_metadata is no serialized SummaryMetadata message"
            ) from None
        _fill_tensor(value.tensor, tensor, k.input_dtypes[1])
        return _serialized(made)


@op("MergeSummary(inputs: N*string) -> summary: string", N="int >= 1")
class MergeSummary(_Summary):
    """One summary with the values of all. A tag that comes twice is an error."""

    samples = [
        sample(
            [
                text(b"\n\x08\n\x01a\x15\x00\x00\x80?").reshape(()),
                text(b"\n\x08\n\x01b\x15\x00\x00\x00@").reshape(()),
            ]
        ),
        sample([text(b"\n\x08\n\x01a\x15\x00\x00\x80?", b"")]),
    ]

    def compute(self, k: KernelContext, *inputs: Any) -> Any:
        from google.protobuf.message import DecodeError

        made = _new()
        seen: set[str] = set()
        for serialized in (item for tensor in inputs for item in tensor.reshape(-1).tolist()):
            one = _new()
            try:
                one.ParseFromString(serialized)
            except DecodeError:
                raise InvalidArgumentError(
                    None, None, "one of the inputs is no serialized Summary message"
                ) from None
            for value in one.value:
                if value.tag in seen:
                    raise InvalidArgumentError(
                        None, None, f"Duplicate tag {value.tag} found in summary inputs"
                    )
                if value.tag:
                    seen.add(value.tag)
            made.value.extend(one.value)
        return _serialized(made)
