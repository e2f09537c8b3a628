"""Sliding windows: the geometry that convolutions and pools share, for any number of spatial dimensions.

Window position `o` of a spatial dimension covers the inputs `o * stride + k * dilation - pad_before`, for `k`
in [0, kernel). Data formats ("NHWC", "NCHW", "NDHWC", "NCDHW") are only read here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

Ints = tuple[int, ...]


@dataclass(frozen=True)
class Window:
    """How a kernel slides. Every field has one entry for each spatial dimension."""

    input: Ints
    kernel: Ints
    strides: Ints
    dilations: Ints
    pad_before: Ints
    pad_after: Ints
    output: Ints

    @property
    def padded(self) -> bool:
        return any(self.pad_before) or any(self.pad_after)

    @property
    def pointwise(self) -> bool:
        """Each output sees one input, the one of the same position."""
        return not self.padded and all(k == s == 1 for k, s in zip(self.kernel, self.strides, strict=True))

    @property
    def tiles(self) -> bool:
        """The windows neither overlap nor leave gaps nor reach outside."""
        return (
            not self.padded
            and self.kernel == self.strides
            and all(d == 1 for d in self.dilations)
            and all(o * k == i for o, k, i in zip(self.output, self.kernel, self.input, strict=True))
        )

    def taps(self) -> Iterator[tuple[int, tuple[slice, ...], tuple[slice, ...]]]:
        """(number, input slices, output slices) of each kernel element, in row-major order.

        The output slices pick the window positions at which that element lies inside the input, the input
        slices what it sees there: two views of one shape. Elements that are always outside are left out.
        """
        per_dimension = [list(self._taps(d)) for d in range(len(self.kernel))]
        number_and_slices = [(0, (), ())]
        for d, taps in enumerate(per_dimension):
            number_and_slices = [
                (number * self.kernel[d] + k, (*inputs, i), (*outputs, o))
                for number, inputs, outputs in number_and_slices
                for k, i, o in taps
            ]
        yield from number_and_slices

    def _taps(self, d: int) -> Iterator[tuple[int, slice, slice]]:
        size, stride, count = self.input[d], self.strides[d], self.output[d]
        for k in range(self.kernel[d]):
            offset = k * self.dilations[d] - self.pad_before[d]
            first = max(0, -(offset // stride))
            last = min(count - 1, (size - 1 - offset) // stride)
            if first <= last:
                start = first * stride + offset
                yield k, slice(start, last * stride + offset + 1, stride), slice(first, last + 1)


def output_size(
    size: int, kernel: int, stride: int, dilation: int, padding: str, explicit: tuple[int, int] = (0, 0)
) -> int:
    """Window positions along one dimension, by TensorFlow's rules. `explicit` counts for padding EXPLICIT."""
    reach = (kernel - 1) * dilation + 1
    if padding == "SAME":
        return -(-size // stride)
    if padding == "EXPLICIT":
        size += sum(explicit)
    return (size - reach + stride) // stride


@lru_cache(maxsize=1024)
def window(
    input: Ints,
    kernel: Ints,
    strides: Ints,
    padding: str,
    dilations: Ints | None = None,
    explicit: tuple[tuple[int, int], ...] | None = None,
) -> Window:
    """The Window of a kernel over spatial sizes `input`.

    Args:
      padding: "SAME", "VALID" or "EXPLICIT"; then `explicit` has (before, after) for each spatial dimension.
    Raises:
      ValueError: a stride, dilation or kernel size below 1, a negative padding, or a kernel that
        reaches further than the padded input.
    """
    rank = len(input)
    dilations = dilations or (1,) * rank
    explicit = explicit if padding == "EXPLICIT" and explicit else ((0, 0),) * rank
    if not len(kernel) == len(strides) == len(dilations) == len(explicit) == rank:
        raise ValueError(
            f"{rank} spatial dimensions need {rank} kernel sizes, strides, "
            f"dilations and paddings, got {kernel}, {strides}, {dilations}, {explicit}."
        )
    for what, values, least in (
        ("kernel size", kernel, 1),
        ("stride", strides, 1),
        ("dilation", dilations, 1),
        ("padding", sum(explicit, ()), 0),
    ):
        if min(values, default=least) < least:
            raise ValueError(f"Every {what} must be at least {least}, got {list(values)}.")
    output, before, after = [], [], []
    for size, k, s, d, pads in zip(input, kernel, strides, dilations, explicit, strict=True):
        count = output_size(size, k, s, d, padding, pads)
        reach = (k - 1) * d + 1
        if count < 0:
            raise ValueError(
                f"A kernel of {k} with dilation {d} reaches over {reach} inputs, "
                f"the padded input has {size + sum(pads)}: the output size would be {count}."
            )
        if padding == "SAME":
            needed = max(0, (count - 1) * s + reach - size)
            pads = (needed // 2, needed - needed // 2)
        output.append(count)
        before.append(pads[0])
        after.append(pads[1])
    return Window(
        tuple(input),
        tuple(kernel),
        tuple(strides),
        tuple(dilations),
        tuple(before),
        tuple(after),
        tuple(output),
    )


def channels_first(data_format: str) -> bool:
    return data_format.startswith("NC")


def spatial(values: Sequence, data_format: str) -> tuple:
    """The entries of `values` (one for each dimension of `data_format`) that belong to spatial dimensions."""
    return tuple(values[2:] if channels_first(data_format) else values[1:-1])


def joined(batch, spatial_values: Sequence, channels, data_format: str) -> tuple:
    """The opposite of `spatial`: one entry for each dimension, in the order of `data_format`."""
    if channels_first(data_format):
        return (batch, channels, *spatial_values)
    return (batch, *spatial_values, channels)
