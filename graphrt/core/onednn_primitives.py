"""Convolution, pooling and local response normalisation as oneDNN programs, on float32 NumPy arrays.

Every function returns False, having done nothing, where oneDNN is not there or has no implementation worth
using; the caller then takes the NumPy kernel. Arrays are C-contiguous and not empty. Programs are kept for
each combination of shapes and attributes, the least recently used forgotten first.

Layouts: channels-last activations stay as they are where oneDNN has fast code for that; channels-first ones
go through oneDNN's own layout, which costs two copies and saves more (a convolution over 56x56x64: 20 ms
against 15). A filter goes to the layout that the primitive prefers, and back for a filter gradient: filters
are small. Reference code is never used: a backward convolution in it took 1.1 s against 14 ms.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from ctypes import c_int64
from math import prod

import numpy as np

from graphrt.core.onednn import UNSUPPORTED, Handle, Library, OneDNNError, Program, compute_lock, library
from graphrt.core.windows import Window

FORWARD_TRAINING, FORWARD_INFERENCE = 64, 96
DIRECT, MAX, AVERAGE_INSIDE, ACROSS_CHANNELS = 0x1, 0x1FF, 0x3FF, 0xAFF
SRC, DST, WEIGHTS, BIAS, WORKSPACE, DIFF_SRC, DIFF_DST, DIFF_WEIGHTS = 1, 17, 33, 41, 64, 129, 145, 161
"""DNNL_ARG_*"""
LAYOUT_OF = {
    SRC: 129,
    DIFF_SRC: 130,
    WEIGHTS: 131,
    DIFF_WEIGHTS: 132,
    DST: 133,
    DIFF_DST: 134,
    WORKSPACE: 135,
}
"""The dnnl_query_*_md of each argument."""

SERIAL_BELOW = 100_000
"""Elements read by a pooling below which a team of threads costs more than it gains (about 20 us of work)."""

KEPT_PROGRAMS = 512
_programs: OrderedDict[Hashable, Program | None] = OrderedDict()

Layout = tuple[tuple[int, ...], tuple[int, ...]]
"""(dims, strides in elements) in oneDNN's order: batch, channels, spatial; or [groups,] out, in, spatial."""


def convolution(
    x: np.ndarray,
    w: np.ndarray,
    window: Window,
    out: np.ndarray,
    *,
    channels_first: bool = False,
    depthwise: bool = False,
    bias: np.ndarray | None = None,
    relu: bool = False,
) -> bool:
    """out = conv(x, w) [+ bias] [then max(., 0)].

    Args:
      w: [*kernel, channels / groups, outputs], or [*kernel, channels, multiplier] where `depthwise`.
    """
    key = ("conv", x.shape, w.shape, window, channels_first, depthwise, bias is not None, relu)

    def build(lib: Library) -> Program | None:
        source, weights, target = _layouts(x, w, out, channels_first, depthwise)
        shift = lib.strided(target[0][1:2], (1,)) if bias is not None else None
        attributes = lib.new_attributes(relu=relu)
        descriptor = _fastest(
            lib,
            channels_first,
            (source, target),
            lambda src, dst: lib.describe(
                "convolution_forward",
                FORWARD_INFERENCE,
                DIRECT,
                src,
                lib.any_layout(weights[0]),
                shift,
                dst,
                *_moves(window),
                attributes=attributes,
            ),
        )
        if descriptor is None:
            return None
        program = Program(lib)
        inputs = {SRC: source, WEIGHTS: weights} | ({BIAS: (target[0][1:2], (1,))} if shift else {})
        _run_between(program, descriptor, inputs, DST, target)
        return program

    return _run(
        key,
        build,
        (x, w, out) if bias is None else (x, w, bias, out),
        _convolution_work(out, w, channels_first),
    )


def convolution_input_gradient(
    dy: np.ndarray,
    w: np.ndarray,
    window: Window,
    out: np.ndarray,
    *,
    channels_first: bool = False,
    depthwise: bool = False,
) -> bool:
    """out = the gradient of conv(x, w) by x, where dy is the gradient by the output."""
    key = ("conv_dx", out.shape, w.shape, window, channels_first, depthwise)

    def build(lib: Library) -> Program | None:
        source, weights, target = _layouts(out, w, dy, channels_first, depthwise)
        hint = _forward_hint(lib, source, weights, target, window)
        descriptor = _fastest(
            lib,
            channels_first,
            (source, target),
            lambda src, dst: lib.describe(
                "convolution_backward_data",
                DIRECT,
                src,
                lib.any_layout(weights[0]),
                dst,
                *_moves(window),
                hint,
            ),
        )
        if descriptor is None:
            return None
        program = Program(lib)
        _run_between(program, descriptor, {DIFF_DST: target, WEIGHTS: weights}, DIFF_SRC, source)
        return program

    return _run(key, build, (dy, w, out), _convolution_work(dy, w, channels_first))


def convolution_filter_gradient(
    x: np.ndarray,
    dy: np.ndarray,
    window: Window,
    out: np.ndarray,
    *,
    channels_first: bool = False,
    depthwise: bool = False,
) -> bool:
    """out = the gradient of conv(x, w) by w, where dy is the gradient by the output."""
    key = ("conv_dw", x.shape, out.shape, window, channels_first, depthwise)

    def build(lib: Library) -> Program | None:
        source, weights, target = _layouts(x, out, dy, channels_first, depthwise)
        hint = _forward_hint(lib, source, weights, target, window)
        descriptor = _fastest(
            lib,
            channels_first,
            (source, target),
            lambda src, dst: lib.describe(
                "convolution_backward_weights",
                DIRECT,
                src,
                lib.any_layout(weights[0]),
                None,
                dst,
                *_moves(window),
                hint,
            ),
        )
        if descriptor is None:
            return None
        program = Program(lib)
        _run_between(program, descriptor, {SRC: source, DIFF_DST: target}, DIFF_WEIGHTS, weights)
        return program

    return _run(key, build, (x, dy, out), _convolution_work(dy, out, channels_first))


def max_pooling(x: np.ndarray, window: Window, out: np.ndarray, *, channels_first: bool = False) -> bool:
    """out = the maximum of each window of each channel."""
    return _pooling(MAX, x, window, out, channels_first)


def average_pooling(x: np.ndarray, window: Window, out: np.ndarray, *, channels_first: bool = False) -> bool:
    """out = the average over what lies inside the input, of each window of each channel."""
    return _pooling(AVERAGE_INSIDE, x, window, out, channels_first)


def _pooling(algorithm: int, x: np.ndarray, window: Window, out: np.ndarray, channels_first: bool) -> bool:
    key = ("pool", algorithm, x.shape, window, channels_first)

    def build(lib: Library) -> Program | None:
        source, target = _activation(x, channels_first), _activation(out, channels_first)
        descriptor = _describe_pooling(lib, algorithm, FORWARD_INFERENCE, source, target, window)
        if _is_reference(lib, descriptor):
            return None
        program = Program(lib)
        _run_between(program, descriptor, {SRC: source}, DST, target)
        return program

    return _run(key, build, (x, out), out.size * prod(window.kernel))


def average_pooling_gradient(
    dy: np.ndarray, window: Window, out: np.ndarray, *, channels_first: bool = False
) -> bool:
    """out = the gradient of `average_pooling` by its input."""
    key = ("avgpool_dx", out.shape, window, channels_first)

    def build(lib: Library) -> Program | None:
        source, target = _activation(out, channels_first), _activation(dy, channels_first)
        hint = _describe_pooling(lib, AVERAGE_INSIDE, FORWARD_TRAINING, source, target, window)
        descriptor = _describe_pooling_gradient(lib, AVERAGE_INSIDE, source, target, window, hint)
        if _is_reference(lib, descriptor):
            return None
        program = Program(lib)
        _run_between(program, descriptor, {DIFF_DST: target}, DIFF_SRC, source)
        return program

    return _run(key, build, (dy, out), dy.size * prod(window.kernel))


def max_pooling_gradient(
    x: np.ndarray, dy: np.ndarray, window: Window, out: np.ndarray, *, channels_first: bool = False
) -> bool:
    """out = the gradient of `max_pooling` by its input x; of equal maxima of a window the first gets it.

    The forward pass runs again for its workspace (which input won): TensorFlow's ops do not hand that over.
    """
    key = ("maxpool_dx", x.shape, window, channels_first)

    def build(lib: Library) -> Program | None:
        source, target = _activation(x, channels_first), _activation(dy, channels_first)
        forward = _describe_pooling(lib, MAX, FORWARD_TRAINING, source, target, window)
        backward = _describe_pooling_gradient(lib, MAX, source, target, window, forward)
        if _is_reference(lib, forward) or _is_reference(lib, backward):
            return None
        program = Program(lib)
        inner = lib.query_md(forward, LAYOUT_OF[DST], 0)
        src = _read(program, forward, SRC, source)
        ddst = _read(program, backward, DIFF_DST, target)
        winners = program.internal(lib.query_md(forward, LAYOUT_OF[WORKSPACE], 0))
        program.step(forward, {SRC: src, DST: program.internal(inner), WORKSPACE: winners})
        _write(program, backward, {DIFF_DST: ddst, WORKSPACE: winners}, DIFF_SRC, source)
        return program

    return _run(key, build, (x, dy, out), dy.size * prod(window.kernel))


def response_normalisation(
    x: np.ndarray, out: np.ndarray, size: int, alpha: float, beta: float, bias: float
) -> bool:
    """out = x / (bias + alpha / size * sum of x^2 over `size` neighbouring channels)^beta; channels last."""
    key = ("lrn", x.shape, size, alpha, beta, bias)

    def build(lib: Library) -> Program | None:
        source = _activation(x, False)
        descriptor = _describe_lrn(lib, source, FORWARD_INFERENCE, size, alpha, beta, bias)
        if _is_reference(lib, descriptor):
            return None
        program = Program(lib)
        _run_between(program, descriptor, {SRC: source}, DST, source)
        return program

    return _run(key, build, (x, out), x.size * size)


def matrix_product(a: np.ndarray, b: np.ndarray, out: np.ndarray) -> bool:
    """out = a @ b for float32 matrices, each contiguous or the transpose of such a one; out is contiguous.

    Beside other busy threads OpenBLAS, whose threads spin, took 27 ms for 100x784 @ 784x512, this 1.7 ms.
    """
    found = library()
    layouts = _row_major(a), _row_major(b)
    if found is None or None in layouts or not out.flags.c_contiguous or not (a.size and b.size):
        return False
    if not all(matrix.dtype == np.float32 for matrix in (a, b, out)):
        return False
    (transpose_a, lda), (transpose_b, ldb) = layouts
    (m, k), n = a.shape, b.shape[1]
    if b.shape[0] != k or out.shape != (m, n):
        raise ValueError(f"cannot put the product of {a.shape} and {b.shape} into {out.shape}")
    with compute_lock, found.one_thread(m * n * k < 16 * SERIAL_BELOW):
        found.sgemm(
            *(transpose_a, transpose_b, m, n, k, 1.0, _address(a), lda),
            *(_address(b), ldb, 0.0, _address(out), n),
        )
    return True


def _row_major(matrix: np.ndarray) -> tuple[bytes, int] | None:
    """(whether it is a transpose: N or T, elements from row to row in memory), or None for other layouts."""
    if matrix.flags.c_contiguous:
        return b"N", matrix.shape[1]
    if matrix.flags.f_contiguous:
        return b"T", matrix.shape[0]
    return None


def _address(array: np.ndarray) -> int:
    return array.__array_interface__["data"][0]


def implementations() -> dict[Hashable, list[str]]:
    """The names of oneDNN's implementations that each kept program uses; an empty list where it has none."""
    with compute_lock:
        return {key: program.implementations if program else [] for key, program in _programs.items()}


def forget_programs() -> None:
    """Drop all programs; the next call of each kind builds its own again."""
    with compute_lock:
        _programs.clear()


os.register_at_fork(after_in_child=forget_programs)  # they were built for the parent's number of threads


def _run(
    key: Hashable, build: Callable[[Library], Program | None], arrays: Sequence[np.ndarray], work: int
) -> bool:
    """Run the program of `key` on `arrays`, building it at the first call; False where there is none."""
    found = library()
    if found is None:
        return False
    with compute_lock:
        if key in _programs:
            _programs.move_to_end(key)
            program = _programs[key]
        else:
            program = _programs[key] = _build(found, build, serial=work < SERIAL_BELOW)
            if len(_programs) > KEPT_PROGRAMS:
                _programs.popitem(last=False)
        if program is None:
            return False
        program(*map(_address, arrays))
        return True


def _build(found: Library, build: Callable[[Library], Program | None], serial: bool) -> Program | None:
    try:
        with found.one_thread(serial):
            program = build(found)
    except OneDNNError as error:
        if error.status not in UNSUPPORTED:
            raise
        return None
    if program is not None:
        program.serial = serial
    return program


def _convolution_work(y: np.ndarray, w: np.ndarray, channels_first: bool) -> int:
    """In the unit of SERIAL_BELOW: 16 multiplications cost what one element of a pooling does."""
    return y.size * w.size // (16 * y.shape[1 if channels_first else -1])


def _run_between(
    program: Program, descriptor: Handle, inputs: dict[int, Layout], result: int, layout: Layout
) -> None:
    """Add `descriptor`, its inputs and result being external memory, with reorders where layouts differ."""
    arguments = {argument: _read(program, descriptor, argument, given) for argument, given in inputs.items()}
    _write(program, descriptor, arguments, result, layout)


def _read(program: Program, descriptor: Handle, argument: int, layout: Layout) -> Handle:
    """External memory of `layout` as an argument of `descriptor`, reordered where that wants another."""
    ours = program.library.strided(*layout)
    theirs = program.library.query_md(descriptor, LAYOUT_OF[argument], 0) if argument != BIAS else ours
    return program.read(program.external(ours), ours, theirs)


def _write(
    program: Program, descriptor: Handle, arguments: dict[int, Handle], result: int, layout: Layout
) -> None:
    """Add `descriptor`, its result in external memory of `layout`, reordered where it produces another."""
    ours = program.library.strided(*layout)
    theirs = program.library.query_md(descriptor, LAYOUT_OF[result], 0)
    memory, copy_back = program.write(program.external(ours), ours, theirs)
    program.step(descriptor, {**arguments, result: memory})
    copy_back()


def _fastest(
    lib: Library, channels_first: bool, activations: Sequence[Layout], describe: Callable[..., Handle]
) -> Handle | None:
    """The first descriptor that is not reference code, over the layouts worth trying for the activations."""
    as_they_are = [lib.strided(*layout) for layout in activations]
    free = [lib.any_layout(dims) for dims, _ in activations]
    for layouts in (free, as_they_are) if channels_first else (as_they_are, free):
        try:
            descriptor = describe(*layouts)
        except OneDNNError as error:
            if error.status not in UNSUPPORTED:
                raise
            continue
        if not _is_reference(lib, descriptor):
            return descriptor
    return None


def _is_reference(lib: Library, descriptor: Handle) -> bool:
    return "ref" in lib.implementation(descriptor)


def _forward_hint(lib: Library, source: Layout, weights: Layout, target: Layout, window: Window) -> Handle:
    return lib.describe(
        "convolution_forward",
        FORWARD_TRAINING,
        DIRECT,
        lib.any_layout(source[0]),
        lib.any_layout(weights[0]),
        None,
        lib.any_layout(target[0]),
        *_moves(window),
    )


def _describe_pooling(
    lib: Library, algorithm: int, kind: int, source: Layout, target: Layout, window: Window
) -> Handle:
    return lib.describe(
        "pooling_forward",
        kind,
        algorithm,
        _channels_last(lib, source),
        _channels_last(lib, target),
        *_pool_moves(window),
    )


def _describe_pooling_gradient(
    lib: Library, algorithm: int, source: Layout, target: Layout, window: Window, hint: Handle
) -> Handle:
    return lib.describe(
        "pooling_backward",
        algorithm,
        _channels_last(lib, source),
        _channels_last(lib, target),
        *_pool_moves(window),
        hint,
    )


def _channels_last(lib: Library, layout: Layout) -> Handle:
    """The dims of `layout`, channels last in memory: pooling anything else is slow (4 ms against 0.2)."""
    batch, channels, *spatial = layout[0]
    outer, *steps, _ = _contiguous_strides((batch, *spatial, channels))
    return lib.strided(layout[0], (outer, 1, *steps))


def _describe_lrn(
    lib: Library, source: Layout, kind: int, size: int, alpha: float, beta: float, bias: float
) -> Handle:
    return lib.describe(
        "lrn_forward",
        kind,
        ACROSS_CHANNELS,
        lib.strided(*source),
        lib.strided(*source),
        size,
        alpha,
        beta,
        bias,
    )


def _moves(window: Window) -> list:
    """(strides, dilations, paddings before, after) of a convolution; a dilation of 1 is 0 to oneDNN."""
    longs = c_int64 * len(window.kernel)
    return [
        longs(*window.strides),
        longs(*(d - 1 for d in window.dilations)),
        longs(*window.pad_before),
        longs(*window.pad_after),
    ]


def _pool_moves(window: Window) -> list:
    strides, *rest = _moves(window)
    return [strides, (c_int64 * len(window.kernel))(*window.kernel), *rest]


def _layouts(
    x: np.ndarray, w: np.ndarray, y: np.ndarray, channels_first: bool, depthwise: bool
) -> tuple[Layout, ...]:
    source, target = _activation(x, channels_first), _activation(y, channels_first)
    return source, _filter(w.shape, source[0][1], depthwise), target


def _activation(array: np.ndarray, channels_first: bool) -> Layout:
    shape, strides = array.shape, _contiguous_strides(array.shape)
    order = range(array.ndim) if channels_first else (0, array.ndim - 1, *range(1, array.ndim - 1))
    return tuple(shape[d] for d in order), tuple(strides[d] for d in order)


def _filter(shape: Sequence[int], channels: int, depthwise: bool) -> Layout:
    *kernel, inner, outer = shape
    *steps, inner_step, _ = _contiguous_strides(shape)
    if depthwise:
        return (inner, outer, 1, *kernel), (outer, 1, inner * outer, *steps)
    if channels == inner:
        return (outer, inner, *kernel), (1, inner_step, *steps)
    groups = channels // inner
    return (groups, outer // groups, inner, *kernel), (outer // groups, 1, inner_step, *steps)


def _contiguous_strides(shape: Sequence[int]) -> list[int]:
    strides = [1] * len(shape)
    for d in range(len(shape) - 2, -1, -1):
        strides[d] = strides[d + 1] * shape[d + 1]
    return strides
