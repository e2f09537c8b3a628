"""oneDNN's C API v3 through ctypes: finding the library, and running its primitives on NumPy memory.

`available()` says which library was loaded, or why none was. A `Program` is a short sequence of primitives
(reorders around a convolution, say) bound to memory: some of it the caller's, given by address at each call,
the rest in one scratch area that all programs share, because they run one at a time under `compute_lock`:
libgomp keeps a team of threads for every calling thread, and two teams at once fight for the cores.
`onednn_primitives.py` beside this builds the programs for convolution, pooling and local response
normalisation.

The library is looked for in this order, once, at the first use: `libdnnl.so.3` where the system's loader
finds it; the file inside the `onednn-cpu-gomp` wheel; the path in the environment variable GRAPHRT_ONEDNN.
GRAPHRT_ONEDNN=off turns it off.

A forked child has none of its parent's OpenMP threads, and waiting for them would last for ever: a child
builds its programs anew and runs them on the calling thread alone.
"""

from __future__ import annotations

import ctypes
import logging
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from ctypes import POINTER, byref, c_char, c_char_p, c_float, c_int, c_int64, c_size_t, c_uint, c_void_p
from dataclasses import dataclass

import numpy as np

WHEEL = "onednn-cpu-gomp"
ENVIRONMENT = "GRAPHRT_ONEDNN"

compute_lock = threading.RLock()
"""Held while a oneDNN primitive is built or runs: one thread of the process computes in oneDNN at a time."""

_log = logging.getLogger("graphrt")


class OneDNNError(RuntimeError):
    """A oneDNN call failed; `status` is its dnnl_status_t."""

    def __init__(self, function: str, status: int):
        self.status = status
        super().__init__(f"oneDNN: {function} returned {STATUS.get(status, status)}")


STATUS = {
    1: "out_of_memory",
    2: "invalid_arguments",
    3: "unimplemented",
    4: "last_impl_reached",
    5: "runtime_error",
    6: "not_required",
}
UNSUPPORTED = frozenset({2, 3, 4})
"""Statuses by which oneDNN says that it has no implementation for the shapes asked for."""


@dataclass(frozen=True)
class Availability:
    """Whether oneDNN can be used. `version` and `path` say which library, `reason` why there is none."""

    ok: bool
    path: str = ""
    version: str = ""
    reason: str = ""

    def __bool__(self) -> bool:
        return self.ok

    def __str__(self) -> str:
        return f"oneDNN {self.version} from {self.path}" if self.ok else f"no oneDNN: {self.reason}"


class _Version(ctypes.Structure):
    _fields_ = [
        ("major", c_int),
        ("minor", c_int),
        ("patch", c_int),
        ("hash", c_char_p),
        ("cpu_runtime", c_uint),
        ("gpu_runtime", c_uint),
    ]


class ExecArg(ctypes.Structure):
    """dnnl_exec_arg_t."""

    _fields_ = [("arg", c_int), ("memory", c_void_p)]


_SYNCHRONOUS_RUNTIMES = {1: "sequential", 2: "OpenMP", 4: "TBB"}

_PD_CREATORS = {  # what stands between (engine, ...) and the final attr, in the header's order
    "convolution_forward": [c_int, c_int] + [c_void_p] * 8,
    "convolution_backward_data": [c_int] + [c_void_p] * 8,
    "convolution_backward_weights": [c_int] + [c_void_p] * 9,
    "pooling_forward": [c_int, c_int] + [c_void_p] * 7,
    "pooling_backward": [c_int] + [c_void_p] * 8,
    "lrn_forward": [c_int, c_int, c_void_p, c_void_p, c_int64, c_float, c_float, c_float],
    "lrn_backward": [c_int, c_void_p, c_void_p, c_void_p, c_int64, c_float, c_float, c_float, c_void_p],
}

_CHECKED = {  # functions that return a dnnl_status_t
    "engine_create": [c_void_p, c_int, c_size_t],
    "stream_create": [c_void_p, c_void_p, c_uint],
    "memory_desc_create_with_strides": [c_void_p, c_int, POINTER(c_int64), c_int, POINTER(c_int64)],
    "memory_desc_create_with_tag": [c_void_p, c_int, POINTER(c_int64), c_int, c_int],
    "memory_desc_destroy": [c_void_p],
    "memory_create": [c_void_p, c_void_p, c_void_p, c_void_p],
    "memory_set_data_handle": [c_void_p, c_void_p],
    "memory_destroy": [c_void_p],
    "primitive_attr_create": [c_void_p],
    "primitive_attr_destroy": [c_void_p],
    "primitive_attr_set_scratchpad_mode": [c_void_p, c_int],
    "primitive_attr_set_post_ops": [c_void_p, c_void_p],
    "post_ops_create": [c_void_p],
    "post_ops_append_eltwise": [c_void_p, c_int, c_float, c_float],
    "post_ops_destroy": [c_void_p],
    "reorder_primitive_desc_create": [c_void_p] * 6,
    "primitive_desc_query": [c_void_p, c_int, c_int, c_void_p],
    "primitive_desc_destroy": [c_void_p],
    "primitive_create": [c_void_p, c_void_p],
    "primitive_destroy": [c_void_p],
    **{
        f"{kind}_primitive_desc_create": [c_void_p, c_void_p, *between, c_void_p]
        for kind, between in _PD_CREATORS.items()
    },
}


def _raise_on_failure(status: int, function, arguments) -> int:
    if status:
        raise OneDNNError(function.__name__, status)
    return status


class Handle:
    """An object of the library, destroyed with this one. ctypes takes it where a pointer is wanted."""

    __slots__ = ("_as_parameter_", "_destroy", "keep")

    def __init__(self, pointer: int, destroy: Callable, keep: object = None):
        self._as_parameter_ = c_void_p(pointer)
        self._destroy = destroy
        self.keep = keep

    def __del__(self):
        self._destroy(self._as_parameter_)


class Library:
    """The functions of one loaded libdnnl, with its CPU engine and stream."""

    FLOAT32, ANY_FORMAT, CPU_ENGINE = 3, 1, 1

    def __init__(self, path: str):
        with _short_spin():
            quick = ctypes.PyDLL(path)  # keeps the GIL: calls of well under a microsecond
            slow = ctypes.CDLL(path)
        self.path = path
        version_of = quick.dnnl_version
        version_of.restype = POINTER(_Version)
        version = version_of().contents
        self.version = f"{version.major}.{version.minor}.{version.patch}"
        if version.major != 3:
            raise OSError(f"{path} is oneDNN {self.version}; version 3 is needed")
        if version.cpu_runtime not in _SYNCHRONOUS_RUNTIMES:
            raise OSError(
                f"{path} is oneDNN {self.version} built for an asynchronous CPU runtime "
                f"({version.cpu_runtime:#x}); an OpenMP, TBB or sequential build is needed"
            )
        for name, argtypes in _CHECKED.items():
            function = getattr(slow if name == "primitive_create" else quick, f"dnnl_{name}")
            function.argtypes = argtypes
            function.errcheck = _raise_on_failure
            setattr(self, name, function)
        self.query_md = quick.dnnl_primitive_desc_query_md
        self.query_md.argtypes = [c_void_p, c_int, c_int]
        self.query_md.restype = c_void_p
        self.md_equal = quick.dnnl_memory_desc_equal
        self.md_equal.argtypes = [c_void_p, c_void_p]
        self.md_size = quick.dnnl_memory_desc_get_size
        self.md_size.argtypes = [c_void_p]
        self.md_size.restype = c_size_t
        self.execute = slow.dnnl_primitive_execute  # releases the GIL
        self.execute.argtypes = [c_void_p, c_void_p, c_int, c_void_p]
        self.execute.errcheck = _raise_on_failure
        self.sgemm = slow.dnnl_sgemm
        self.sgemm.argtypes = [
            *[c_char, c_char, c_int64, c_int64, c_int64, c_float, c_void_p, c_int64],
            *[c_void_p, c_int64, c_float, c_void_p, c_int64],
        ]
        self.sgemm.errcheck = _raise_on_failure
        self.forked = False
        # OpenMP's functions are found in what libdnnl links to; a sequential build has none.
        self._set_threads = getattr(quick, "omp_set_num_threads", None)
        self._get_threads = getattr(quick, "omp_get_max_threads", None)
        self.can_run_after_fork = self._set_threads is not None or version.cpu_runtime == 1
        self.engine = self._new("engine_create", self.CPU_ENGINE, 0)
        self.stream = self._new("stream_create", self.engine, 1)
        self.attributes = self.new_attributes()

    def _new(self, function: str, *arguments) -> c_void_p:
        made = c_void_p()
        getattr(self, function)(byref(made), *arguments)
        return made

    @contextmanager
    def one_thread(self, wanted: bool) -> Iterator[None]:
        """What is built or run inside uses the calling thread alone, where `wanted` or in a forked child."""
        if self._set_threads is None or not (wanted or self.forked):
            yield
            return
        before = self._get_threads()
        self._set_threads(1)
        try:
            yield
        finally:
            self._set_threads(before)

    def strided(self, dims: Sequence[int], strides: Sequence[int]) -> Handle:
        """A float32 memory descriptor; `dims` in oneDNN's logical order, `strides` in elements."""
        longs = c_int64 * len(dims)
        made = self._new(
            "memory_desc_create_with_strides", len(dims), longs(*dims), self.FLOAT32, longs(*strides)
        )
        return Handle(made.value, self.memory_desc_destroy)

    def any_layout(self, dims: Sequence[int]) -> Handle:
        """A float32 memory descriptor whose layout the primitive may choose."""
        longs = c_int64 * len(dims)
        made = self._new(
            "memory_desc_create_with_tag", len(dims), longs(*dims), self.FLOAT32, self.ANY_FORMAT
        )
        return Handle(made.value, self.memory_desc_destroy)

    def new_attributes(self, relu: bool = False) -> Handle:
        """Primitive attributes: scratchpads come from us; `relu` adds max(x, 0) after the operation."""
        made = Handle(self._new("primitive_attr_create").value, self.primitive_attr_destroy)
        self.primitive_attr_set_scratchpad_mode(made, 1)
        if relu:
            post = Handle(self._new("post_ops_create").value, self.post_ops_destroy)
            self.post_ops_append_eltwise(post, 0x20, 0.0, 0.0)
            self.primitive_attr_set_post_ops(made, post)
        return made

    def describe(self, kind: str, *arguments, attributes: Handle | None = None) -> Handle:
        """A primitive descriptor of `kind` (a key of _PD_CREATORS); OneDNNError where there is none."""
        made = self._new(
            f"{kind}_primitive_desc_create", self.engine, *arguments, attributes or self.attributes
        )
        return Handle(made.value, self.primitive_desc_destroy)

    def implementation(self, descriptor: Handle) -> str:
        """The name of the implementation that a primitive descriptor stands for, as "jit:avx2"."""
        name = c_char_p()
        self.primitive_desc_query(descriptor, 8, 0, byref(name))
        return name.value.decode()


@contextmanager
def _short_spin() -> Iterator[None]:
    """libgomp reads its spin count when it is loaded: waiting threads spin for about 50 us, then sleep.

    Its default of 6 ms takes the cores from every other thread pool between two primitives, and where others
    are busy it is slower itself (2.5 ms a call against 1.2). A choice that the user made in the environment
    stays, and the environment is as before afterwards.
    """
    chosen = {"GOMP_SPINCOUNT", "OMP_WAIT_POLICY"} & os.environ.keys()
    if not chosen:
        os.environ["GOMP_SPINCOUNT"] = "2000"
    try:
        yield
    finally:
        if not chosen:
            del os.environ["GOMP_SPINCOUNT"]


def _wheel_file() -> str | None:
    from importlib import metadata  # slow to import, and needed once

    try:
        files = metadata.files(WHEEL) or ()
    except metadata.PackageNotFoundError:
        return None
    for file in files:
        if file.name == "libdnnl.so.3":
            return str(file.locate().resolve())
    return None


def _candidates() -> list[str]:
    """Paths of the library, in the order in which they are tried."""
    found = ["libdnnl.so.3"] if sys.platform == "linux" else []
    return [*found, *filter(None, [_wheel_file(), os.environ.get(ENVIRONMENT)])]


def _load() -> tuple[Library | None, Availability]:
    if os.environ.get(ENVIRONMENT, "").lower() == "off":
        return None, Availability(False, reason=f"turned off by {ENVIRONMENT}=off")
    failed = []
    for path in _candidates():
        try:
            library = Library(path)
        except (OSError, AttributeError, OneDNNError) as error:
            failed.append(f"{path}: {error}" if path not in str(error) else str(error))
        else:
            return library, Availability(True, path, library.version)
    reason = "; ".join([*failed, f"install {WHEEL} (x86-64 Linux), or set {ENVIRONMENT} to a libdnnl"])
    return None, Availability(False, reason=reason)


_loaded: tuple[Library | None, Availability] | None = None


def library() -> Library | None:
    """The loaded library, or None; one log message the first time that there is none."""
    global _loaded
    if _loaded is None:
        with compute_lock:
            if _loaded is None:
                found = _load()
                if not found[1]:
                    _log.info("%s. Convolutions and pooling use NumPy, several times slower.", found[1])
                _loaded = found
    return _loaded[0]


def available() -> Availability:
    """Whether oneDNN can be used, which library it is, or why there is none."""
    library()
    return _loaded[1]


def _go_on_in_child() -> None:
    global _loaded
    compute_lock.release()
    if _loaded and _loaded[0]:
        if _loaded[0].can_run_after_fork:
            _loaded[0].forked = True
        else:
            _loaded = None, Availability(False, reason=f"{_loaded[0].path} cannot go on after a fork")


# The lock is held across a fork, so that a child starts with no primitive half built or half run.
os.register_at_fork(
    before=compute_lock.acquire, after_in_parent=compute_lock.release, after_in_child=_go_on_in_child
)


class Scratch:
    """One 64-byte aligned area for what programs need while they run; it grows to the largest need.

    A need above `keep_bytes` is met by memory of its own, given back after the run.
    """

    def __init__(self, keep_bytes: int = 64 << 20):
        self.keep_bytes = keep_bytes
        self._memory = np.empty(0, np.uint8)

    def reserve(self, size: int) -> tuple[int, np.ndarray]:
        """(address of `size` bytes, the array that owns them)."""
        memory = self._memory
        if memory.size < size + 64:
            memory = np.empty(size + 64, np.uint8)
            if size <= self.keep_bytes:
                self._memory = memory
        return _aligned(memory), memory

    def kept_bytes(self) -> int:
        return self._memory.size


def _aligned(memory: np.ndarray) -> int:
    return -(-memory.ctypes.data // 64) * 64


_scratch = Scratch()


class Program:
    """A sequence of primitives over memory. Build it with the methods, then call it with addresses.

    Args of a call: one address for each `external`, in the order in which those were declared.

    Attributes:
      serial: runs on the calling thread alone; for programs built under `library.one_thread(True)`.
      implementations: oneDNN's name for the code of each step.
    """

    def __init__(self, library: Library):
        self.library = library
        self.serial = False
        self.implementations: list[str] = []
        self._external: list[Handle] = []
        self._internal: list[tuple[Handle, int]] = []
        self._size = 0
        self._base = 0
        self._steps: list[tuple[Handle, int, ctypes.Array]] = []

    def external(self, descriptor) -> Handle:
        """Memory of the caller's, laid out as `descriptor` says."""
        memory = self._memory(descriptor)
        self._external.append(memory)
        return memory

    def internal(self, descriptor) -> Handle:
        """Memory that holds its content during one call."""
        memory = self._memory(descriptor)
        self._internal.append((memory, self._size))
        self._size += -(-self.library.md_size(descriptor) // 64) * 64
        return memory

    def _memory(self, descriptor) -> Handle:
        made = self.library._new("memory_create", descriptor, self.library.engine, None)
        return Handle(made.value, self.library.memory_destroy)

    def read(self, memory: Handle, descriptor, wanted) -> Handle:
        """`memory` in the layout `wanted`: itself where it has that, else a copy made by a reorder here."""
        if self.library.md_equal(descriptor, wanted):
            return memory
        copy = self.internal(wanted)
        self._reorder(memory, descriptor, copy, wanted)
        return copy

    def write(self, memory: Handle, descriptor, produced) -> tuple[Handle, Callable[[], None]]:
        """Memory of layout `produced` for a result that belongs in `memory`; what to call after its step."""
        if self.library.md_equal(descriptor, produced):
            return memory, lambda: None
        source = self.internal(produced)
        return source, lambda: self._reorder(source, produced, memory, descriptor)

    def _reorder(self, source: Handle, source_descriptor, target: Handle, target_descriptor) -> None:
        engine = self.library.engine
        made = self.library._new(
            "reorder_primitive_desc_create",
            source_descriptor,
            engine,
            target_descriptor,
            engine,
            self.library.attributes,
        )
        self.step(Handle(made.value, self.library.primitive_desc_destroy), {1: source, 17: target})

    def step(self, descriptor: Handle, arguments: Mapping[int, Handle]) -> None:
        """Append the primitive of `descriptor`; `arguments` maps DNNL_ARG_* to memory."""
        arguments = dict(arguments)
        scratchpad = self.library.query_md(descriptor, 136, 0)
        if scratchpad and self.library.md_size(scratchpad):
            arguments[80] = self.internal(scratchpad)
        primitive = Handle(
            self.library._new("primitive_create", descriptor).value,
            self.library.primitive_destroy,
            keep=(descriptor, tuple(arguments.values())),
        )
        args = (ExecArg * len(arguments))(*((arg, m._as_parameter_.value) for arg, m in arguments.items()))
        self._steps.append((primitive, len(arguments), args))
        self.implementations.append(self.library.implementation(descriptor))

    def __call__(self, *addresses: int) -> None:
        set_address = self.library.memory_set_data_handle
        with compute_lock, self.library.one_thread(self.serial):
            base, owner = _scratch.reserve(self._size)
            if base != self._base:
                for memory, offset in self._internal:
                    set_address(memory, base + offset)
                self._base = base
            for memory, address in zip(self._external, addresses, strict=True):
                set_address(memory, address)
            stream = self.library.stream
            for primitive, count, args in self._steps:
                self.library.execute(primitive, stream, count, args)
            del owner
