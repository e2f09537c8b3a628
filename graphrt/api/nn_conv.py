"""Of tf.nn: convolutions, plain, transposed, dilated, depthwise and separable."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from graphrt.api.nn_space_to_batch import (
    is_channels_first,
    one_each,
    over_batch_dimensions,
    split_padding,
    with_space_to_batch,
)
from graphrt.core import raw
from graphrt.core.arguments import renamed
from graphrt.core.constant_value import constant_value
from graphrt.core.convert import convert_to_tensor
from graphrt.core.default_graph import name_scope
from graphrt.core.dtypes import int32
from graphrt.core.tensor import Tensor
from graphrt.ops.broadcasting import shape_of

__all__ = ["atrous_conv2d", "atrous_conv2d_transpose", "conv1d", "conv1d_transpose", "conv2d",
           "conv2d_backprop_filter",
           "conv2d_backprop_input", "conv2d_transpose", "conv3d", "conv3d_backprop_filter",
           "conv3d_backprop_filter_v2",
           "conv3d_transpose", "conv_transpose", "convolution", "depthwise_conv2d",
           "depthwise_conv2d_backprop_filter",
           "depthwise_conv2d_backprop_input", "depthwise_conv2d_native",
           "depthwise_conv2d_native_backprop_filter",
           "depthwise_conv2d_native_backprop_input", "separable_conv2d"]


def conv2d(input: Any, filter: Any = None, strides: Any = None, padding: Any = None,
           use_cudnn_on_gpu: bool = True,
           data_format: str = "NHWC", dilations: Any = (1, 1, 1, 1), name: str | None = None,
           filters: Any = None) -> Tensor:
    """The convolution (in fact cross-correlation) of images with filters.

    Args:
      input: float tensor [batch, height, width, channels], or [batch, channels, height, width] for "NCHW";
        further dimensions before them count as batch.
      filter: [height, width, channels / groups, outputs], of the same dtype; `filters` is its newer name.
      strides, dilations: a number, or a list of 1, 2 or 4.
      padding: "SAME", "VALID", or a list of 4 pairs (before, after).
    Returns:
      A tensor of input's dtype and layout, with `outputs` channels.
    Raises:
      ValueError: shapes, strides or paddings that do not fit.
    """
    filters = renamed("filters", filters, "filter", filter)
    padding, explicit = split_padding(padding)
    if data_format is None:
        data_format = "NHWC"
    first = is_channels_first(data_format)
    strides, dilations = one_each(strides, 2, first, "strides"), one_each(dilations, 2, first, "dilations")

    def op(x: Tensor) -> Tensor:
        return raw.Conv2D(x, filters, strides=strides, padding=padding, use_cudnn_on_gpu=use_cudnn_on_gpu,
                          explicit_paddings=explicit, data_format=data_format, dilations=dilations, name=name)

    return over_batch_dimensions(input, op, 3)


def conv2d_backprop_input(input_sizes: Any, filter: Any = None, out_backprop: Any = None, strides: Any = None,
                          padding: Any = None, use_cudnn_on_gpu: bool = True, data_format: str = "NHWC",
                          dilations: Any = (1, 1, 1, 1), name: str | None = None,
                          filters: Any = None) -> Tensor:
    """The gradient of conv2d by its input, whose sizes are `input_sizes`."""
    filters = renamed("filters", filters, "filter", filter)
    padding, explicit = split_padding(padding)
    return raw.Conv2DBackpropInput(input_sizes, filters, out_backprop, strides=strides, padding=padding,
                                   use_cudnn_on_gpu=use_cudnn_on_gpu, explicit_paddings=explicit,
                                   data_format=data_format, dilations=list(dilations), name=name)


def conv2d_backprop_filter(input: Any, filter_sizes: Any, out_backprop: Any, strides: Any, padding: Any,
                           use_cudnn_on_gpu: bool = True, data_format: str = "NHWC",
                           dilations: Any = (1, 1, 1, 1),
                           name: str | None = None) -> Tensor:
    """The gradient of conv2d by its filter, whose sizes are `filter_sizes`."""
    padding, explicit = split_padding(padding)
    return raw.Conv2DBackpropFilter(input, filter_sizes, out_backprop, strides=strides, padding=padding,
                                    use_cudnn_on_gpu=use_cudnn_on_gpu, explicit_paddings=explicit,
                                    data_format=data_format, dilations=list(dilations), name=name)


def conv2d_transpose(value: Any = None, filter: Any = None, output_shape: Any = None, strides: Any = None,
                     padding: Any = "SAME", data_format: str = "NHWC", name: str | None = None,
                     input: Any = None,
                     filters: Any = None, dilations: Any = None) -> Tensor:
    """The transpose of conv2d ("deconvolution"): its gradient by the input.

    Args:
      value: what conv2d would give out; `input` is its newer name.
      filter: [height, width, outputs, channels]: conv2d's, seen from its output. `filters` is its newer name.
      output_shape: the four sizes of the result.
    """
    value, filters = renamed("input", input, "value", value), renamed("filters", filters, "filter", filter)
    with name_scope(name, "conv2d_transpose", [value, filters, output_shape]) as scope:
        data_format = data_format or "NHWC"
        first = is_channels_first(data_format)
        padding, explicit = split_padding(padding)
        return raw.Conv2DBackpropInput(
            output_shape, filters, value, strides=one_each(strides, 2, first, "strides"), padding=padding,
            explicit_paddings=explicit, data_format=data_format,
            dilations=one_each(dilations, 2, first, "dilations"),
            name=scope)


def conv1d(value: Any = None, filters: Any = None, stride: Any = None, padding: Any = None,
           use_cudnn_on_gpu: bool | None = None, data_format: str | None = None, name: str | None = None,
           input: Any = None, dilations: Any = None) -> Tensor:
    """conv2d for one spatial dimension.

    Args:
      value: [batch, width, channels], or [batch, channels, width] for "NCW"; `input` is its newer name.
      filters: [width, channels / groups, outputs].
      stride, dilations: a number, or a list of 1 or 3.
    """
    value = renamed("input", input, "value", value)
    with name_scope(name, "conv1d", [value, filters]) as scope:
        format_2d, axis = _one_dimensional(data_format)
        first = axis == 2
        strides, dilations = ([1, *one_each(v, 1, first, what)] for v,
                              what in ((stride, "stride"), (dilations, "dilations")))
        value = convert_to_tensor(value, name="value")
        # Before the spatial dimension; counted from the end, as there may be several batch dimensions.
        at = -2 if first else -3
        wide = raw.ExpandDims(value, at if value.shape.rank is not None else axis)
        filters = raw.ExpandDims(filters, 0)

        def op(x: Tensor) -> Tensor:
            return raw.Conv2D(x, filters, strides=strides, padding=padding, data_format=format_2d,
                              dilations=dilations,
                              use_cudnn_on_gpu=True if use_cudnn_on_gpu is None else use_cudnn_on_gpu,
                              name=scope)

        made = over_batch_dimensions(wide, op, 3)
        return raw.Squeeze(made, squeeze_dims=[at if made.shape.rank is not None else axis])


def conv1d_transpose(input: Any, filters: Any, output_shape: Any, strides: Any, padding: Any = "SAME",
                     data_format: str = "NWC", dilations: Any = None, name: str | None = None) -> Tensor:
    """The transpose of conv1d. See conv2d_transpose."""
    with name_scope(name, "conv1d_transpose", [input, filters, output_shape]) as scope:
        format_2d, axis = _one_dimensional(data_format)
        first = axis == 2
        strides, dilations = ([1, *one_each(v, 1, first, what)]
                              for v, what in ((strides, "strides"), (dilations, "dilations")))
        sizes = convert_to_tensor(output_shape, dtype=int32, name="output_shape")
        wide_sizes = raw.ConcatV2([raw.Slice(sizes, [0], [axis]), np.array([1], np.int32),
                                   raw.Slice(sizes, [axis], [3 - axis])], 0)
        made = raw.Conv2DBackpropInput(wide_sizes, raw.ExpandDims(filters, 0), raw.ExpandDims(input, axis),
                                       strides=strides, padding=padding, data_format=format_2d,
                                       dilations=dilations,
                                       name=scope)
        return raw.Squeeze(made, squeeze_dims=[axis])


def _one_dimensional(data_format: str | None) -> tuple[str, int]:
    """(the two-dimensional data format that stands for it, the axis to put in) of NWC or NCW."""
    if data_format in (None, "NWC", "NHWC"):
        return "NHWC", 1
    if data_format in ("NCW", "NCHW"):
        return "NCHW", 2
    raise ValueError(f"data_format must be 'NWC' or 'NCW', not {data_format!r}")


def conv3d(input: Any, filter: Any = None, strides: Any = None, padding: Any = None,
           data_format: str = "NDHWC",
           dilations: Any = (1, 1, 1, 1, 1), name: str | None = None, filters: Any = None) -> Tensor:
    """conv2d for three spatial dimensions.

    Args:
      input: [batch, depth, height, width, channels], or with the channels second for "NCDHW".
      filter: [depth, height, width, channels, outputs]; `filters` is its newer name.
    """
    filters = renamed("filters", filters, "filter", filter)
    data_format = data_format or "NDHWC"
    first = is_channels_first(data_format)
    strides, dilations = one_each(strides, 3, first, "strides"), one_each(dilations, 3, first, "dilations")

    def op(x: Tensor) -> Tensor:
        return raw.Conv3D(x, filters, strides=strides, padding=padding, data_format=data_format,
                          dilations=dilations,
                          name=name)

    return over_batch_dimensions(input, op, 4)


def conv3d_backprop_filter_v2(input: Any, filter_sizes: Any, out_backprop: Any, strides: Any, padding: Any,
                              data_format: str = "NDHWC", dilations: Any = (1, 1, 1, 1, 1),
                              name: str | None = None) -> Tensor:
    """The gradient of conv3d by its filter, whose sizes are `filter_sizes`."""
    return raw.Conv3DBackpropFilterV2(input, filter_sizes, out_backprop, strides=strides, padding=padding,
                                      data_format=data_format, dilations=list(dilations), name=name)


conv3d_backprop_filter = conv3d_backprop_filter_v2


def conv3d_transpose(value: Any, filter: Any = None, output_shape: Any = None, strides: Any = None,
                     padding: Any = "SAME", data_format: str = "NDHWC", name: str | None = None,
                     input: Any = None,
                     filters: Any = None, dilations: Any = None) -> Tensor:
    """The transpose of conv3d. See conv2d_transpose."""
    value, filters = renamed("input", input, "value", value), renamed("filters", filters, "filter", filter)
    with name_scope(name, "conv3d_transpose", [value, filters, output_shape]) as scope:
        data_format = data_format or "NDHWC"
        first = is_channels_first(data_format)
        return raw.Conv3DBackpropInputV2(
            output_shape, filters, value, strides=one_each(strides, 3, first, "strides"), padding=padding,
            data_format=data_format, dilations=one_each(dilations, 3, first, "dilations"), name=scope)


def conv_transpose(input: Any, filters: Any, output_shape: Any, strides: Any, padding: Any = "SAME",
                   data_format: str | None = None, dilations: Any = None, name: str | None = None) -> Tensor:
    """The transposed convolution over one to three spatial dimensions: as output_shape has, but for two."""
    with name_scope(name, "conv_transpose", [input, filters, output_shape]) as scope:
        size = output_shape.shape.num_elements() if isinstance(output_shape, Tensor) else len(output_shape)
        if size not in (3, 4, 5):
            raise ValueError(f"output_shape must be of length 3, 4 or 5, not {size}")
        function = (conv1d_transpose, conv2d_transpose, conv3d_transpose)[size - 3]
        return function(input, filters, output_shape, strides, padding=padding, dilations=dilations,
                        name=scope,
                        data_format=data_format or ("NWC", "NHWC", "NDHWC")[size - 3])


def convolution(input: Any, filter: Any, padding: Any, strides: Any = None, dilation_rate: Any = None,
                name: str | None = None, data_format: str | None = None, filters: Any = None,
                dilations: Any = None) -> Tensor:
    """Convolution over one to three spatial dimensions: as many as `filter` has, but for two.

    Args:
      strides, dilation_rate: a number, or one for each spatial dimension; not both above 1. `dilations` is
        the newer name of dilation_rate.
    Raises:
      ValueError: neither rank is known; strides and rates that do not fit.
    """
    filters = renamed("filters", filters, "filter", filter)
    rates = renamed("dilations", dilations, "dilation_rate", dilation_rate)
    filters, x = convert_to_tensor(filters, name="filters"), convert_to_tensor(input, name="input")
    if filters.shape.rank is None and x.shape.rank is None:
        raise ValueError("convolution needs the rank of its filter or input while the graph is built; "
                         "set_shape gives it")
    n = (filters.shape.rank if filters.shape.rank is not None else x.shape.rank) - 2
    if n not in (1, 2, 3):
        raise ValueError(f"convolution takes filters of 3, 4 or 5 dimensions, not {n + 2}")
    first = is_channels_first(data_format)
    all_strides, all_rates = one_each(strides, n, first, "strides"), one_each(rates, n, first, "dilations")
    function = (conv1d, conv2d, conv3d)[n - 1]
    data_format = data_format or (None, "NHWC", "NDHWC")[n - 1]
    with name_scope(name, "convolution", [x, filters]) as scope:
        if all(r == 1 for r in all_rates):
            return function(x, filters, all_strides, padding, data_format=data_format, name=scope)
        spatial_strides, spatial_rates = ((v[2:] if first else v[1:-1]) for v in (all_strides, all_rates))
        check_strides_and_rates(spatial_strides, spatial_rates)

        def op(converted: Tensor, _: int, padding: Any) -> Tensor:
            return function(converted, filters, all_strides, padding, data_format=data_format, name=scope)

        return with_space_to_batch(x, spatial_rates, padding, op, shape_of(filters), data_format=data_format)


def check_strides_and_rates(strides: Sequence[int], rates: Sequence[int]) -> None:
    """Raises ValueError where there are both strides and dilation."""
    if any(s > 1 for s in strides) and any(r > 1 for r in rates):
        raise ValueError(f"strides {list(strides)} above 1 do not go with dilation rates {list(rates)} "
                         "above 1")


def atrous_conv2d(value: Any, filters: Any, rate: Any, padding: Any, name: str | None = None) -> Tensor:
    """conv2d of every `rate`-th pixel ("with holes"): stride 1, [batch, height, width, channels]."""
    return convolution(value, filters, padding, dilation_rate=np.broadcast_to(rate, (2,)).tolist(), name=name)


def atrous_conv2d_transpose(value: Any, filters: Any, output_shape: Any, rate: int, padding: str,
                            name: str | None = None) -> Tensor:
    """The transpose of atrous_conv2d.

    Args:
      filters: [height, width, outputs, channels], of known shape.
      output_shape: the four sizes of the result, known while the graph is built.
    """
    with name_scope(name, "atrous_conv2d_transpose", [value, filters, output_shape]) as scope:
        value, filters = convert_to_tensor(value, name="value"), convert_to_tensor(filters, name="filters")
        if rate < 1:
            raise ValueError(f"rate must be at least 1, not {rate}")
        if rate == 1:
            return conv2d_transpose(value, filters, output_shape, strides=[1, 1, 1, 1], padding=padding)
        known = constant_value(convert_to_tensor(output_shape, dtype=int32, name="output_shape"))
        if known is None or filters.shape.sizes is None or None in filters.shape.sizes[:2]:
            raise ValueError("atrous_conv2d_transpose needs output_shape and the filter's height and width "
                             "while the "
                             "graph is built")
        batch, *sizes, channels = known.tolist()
        if padding not in ("SAME", "VALID"):
            raise ValueError(f"padding must be 'SAME' or 'VALID', not {padding!r}")
        reach = [(k - 1) * rate if padding == "SAME" else 0 for k in filters.shape.sizes[:2]]
        padded = [size + r for size, r in zip(sizes, reach)]
        extra = [-n % rate for n in padded]
        block = np.array([rate, rate], np.int32)
        pieces = raw.SpaceToBatchND(value, block, np.array([[0, e] for e in extra], np.int32))
        made = raw.Conv2DBackpropInput(
            np.array([rate * rate * batch, *((n + e) // rate for n, e in zip(padded, extra)), channels],
                     np.int32),
            filters, pieces, strides=[1, 1, 1, 1], padding="VALID")
        crops = np.array([[r // 2, r - r // 2 + e] for r, e in zip(reach, extra)], np.int32)
        return raw.BatchToSpaceND(made, block, crops, name=scope)


def depthwise_conv2d_native(input: Any, filter: Any, strides: Any, padding: Any, data_format: str = "NHWC",
                            dilations: Any = (1, 1, 1, 1), name: str | None = None) -> Tensor:
    """Each channel convolved with filters of its own.

    Args:
      filter: [height, width, channels, multiplier].
      strides: four numbers.
    Returns:
      A tensor of channels * multiplier channels.
    """
    padding, explicit = split_padding(padding)
    return raw.DepthwiseConv2dNative(input, filter, strides=strides, padding=padding,
                                     explicit_paddings=explicit,
                                     data_format=data_format, dilations=list(dilations), name=name)


def depthwise_conv2d_native_backprop_input(input_sizes: Any, filter: Any, out_backprop: Any, strides: Any,
                                           padding: Any,
                                           data_format: str = "NHWC", dilations: Any = (1, 1, 1, 1),
                                           name: str | None = None) -> Tensor:
    """The gradient of depthwise_conv2d_native by its input, whose sizes are `input_sizes`."""
    padding, explicit = split_padding(padding)
    return raw.DepthwiseConv2dNativeBackpropInput(
        input_sizes, filter, out_backprop, strides=strides, padding=padding, explicit_paddings=explicit,
        data_format=data_format, dilations=list(dilations), name=name)


def depthwise_conv2d_native_backprop_filter(input: Any, filter_sizes: Any, out_backprop: Any, strides: Any,
                                            padding: Any,
                                            data_format: str = "NHWC", dilations: Any = (1, 1, 1, 1),
                                            name: str | None = None) -> Tensor:
    """The gradient of depthwise_conv2d_native by its filter, whose sizes are `filter_sizes`."""
    padding, explicit = split_padding(padding)
    return raw.DepthwiseConv2dNativeBackpropFilter(
        input, filter_sizes, out_backprop, strides=strides, padding=padding, explicit_paddings=explicit,
        data_format=data_format, dilations=list(dilations), name=name)


depthwise_conv2d_backprop_input = depthwise_conv2d_native_backprop_input
depthwise_conv2d_backprop_filter = depthwise_conv2d_native_backprop_filter


def depthwise_conv2d(input: Any, filter: Any, strides: Any, padding: Any, rate: Any = None,
                     name: str | None = None,
                     data_format: str | None = None, dilations: Any = None) -> Tensor:
    """Each channel convolved with filters of its own, also dilated.

    Args:
      filter: [height, width, channels, multiplier].
      strides: four numbers.
      rate: dilation of height and width; strides are 1 where one is above 1. `dilations` is its newer name.
    """
    rate = renamed("dilations", dilations, "rate", rate)
    with name_scope(name, "depthwise", [input, filter]) as scope:
        x, filter = convert_to_tensor(input, name="tensor_in"), convert_to_tensor(filter, name="filter_in")
        return _depthwise(x, filter, strides, padding, rate, data_format, scope)


def _depthwise(x: Tensor, filter: Tensor, strides: Any, padding: Any, rate: Any, data_format: str | None,
               name: str) -> Tensor:
    rate = [1, 1] if rate is None else list(rate)
    check_strides_and_rates(strides, rate)

    def op(converted: Tensor, _: int, padding: Any) -> Tensor:
        return depthwise_conv2d_native(converted, filter, strides, padding, data_format or "NHWC", name=name)

    return with_space_to_batch(x, rate, padding, op, shape_of(filter), data_format=data_format)


def separable_conv2d(input: Any, depthwise_filter: Any, pointwise_filter: Any, strides: Any, padding: Any,
                     rate: Any = None, name: str | None = None, data_format: str | None = None,
                     dilations: Any = None) -> Tensor:
    """A depthwise convolution, and then one of 1x1 that mixes the channels.

    Args:
      depthwise_filter: [height, width, channels, multiplier].
      pointwise_filter: [1, 1, channels * multiplier, outputs].
      strides, rate: of the depthwise part. See depthwise_conv2d.
    """
    rate = renamed("dilations", dilations, "rate", rate)
    with name_scope(name, "separable_conv2d", [input, depthwise_filter, pointwise_filter]) as scope:
        x = convert_to_tensor(input, name="tensor_in")
        depthwise_filter = convert_to_tensor(depthwise_filter, name="depthwise_filter")
        pointwise_filter = convert_to_tensor(pointwise_filter, name="pointwise_filter")
        shape = pointwise_filter.shape.with_rank(4)
        if not shape.is_compatible_with([1, 1, None, None]):
            raise ValueError(f"pointwise_filter must have shape [1, 1, inputs, outputs], not {shape}")
        deep = _depthwise(x, depthwise_filter, strides, padding, rate, data_format, "depthwise")
        return conv2d(deep, pointwise_filter, [1, 1, 1, 1], "VALID", data_format=data_format or "NHWC",
                      name=scope)
