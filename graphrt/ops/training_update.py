"""What the training ops share: one optimizer step in place on a variable and its slots, under their locks.

    @training_op("Momentum", slots="accum", inputs="lr grad momentum", use_nesterov="bool = False")
    class Momentum(Update):
        scratch = 1
        def step(self, xp, attrs, scratch, arrays, grad, scalars): ...

registers ApplyMomentum, ResourceApplyMomentum, SparseApplyMomentum and ResourceSparseApplyMomentum. `step`
gets flat arrays of one length: the variable and its slots, which it writes, the gradient, which it does not,
and as much scratch as it asks for. It is called once a block that fits a cache, so that one pass over memory
serves all of its arithmetic.

A sparse form gathers the rows that its indices pick, takes the step on them, and puts them back; equal
indices count one after the other.
"""

from __future__ import annotations

import atexit
import threading
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from graphrt.core.dtypes import INDEX, NUMBERS
from graphrt.core.errors import InvalidArgumentError
from graphrt.core.registry import KernelContext, ShapeContext, op
from graphrt.core.resources import VariableState
from graphrt.core.samples import Program, program
from graphrt.core.shapes import TensorShape
from graphrt.ops.scatter_kernels import checked_rows, rounds_for
from graphrt.ops.state_resource import held

# Elements a block: 64 KB of float32 an array, so that a step's few arrays stay in a core's L2 cache.
BLOCK = 16384
# Elements trained with NumPy before numba's steps are loaded: they take about 1.5 ns less an element, and
# some seconds to compile where no cache has them.
_COMPILE_AFTER = 1 << 28
_LOAD_S = 30.0
# What an input that is not the gradient is called where it stands for it.
_GRADIENTS = ("grad", "delta")


class Update:
    """Base of the optimizers' steps.

    Attributes:
      scratch: how many arrays `step` needs to work in.
      compiled: the name of its step in core/training_jit.py, where it has one (without Nesterov's look
        ahead).
    """

    stateful = True
    not_differentiable = True
    scratch = 1
    compiled = ""
    # Laid by training_op.
    n_states = 1
    grad_at = 0
    indices_at: int | None = None
    scalar_at: tuple[int, ...] = ()
    names: tuple[str, ...] = ()
    is_resource = False

    def prepare(self, xp: Any, attrs: dict[str, Any], scalars: list[Any]) -> Any:
        """What `step` gets as `scalars`: computed once, not once a block. By default the scalar inputs in
        order."""
        return scalars

    def step(
        self, xp: Any, attrs: dict[str, Any], scratch: list[Any], arrays: list[Any], grad: Any, scalars: Any
    ) -> None:
        raise NotImplementedError

    def shape(self, s: ShapeContext, *shapes: TensorShape) -> Any:
        known = [held(s, i) if self.is_resource else shapes[i] for i in range(self.n_states)]
        whole = known[0]
        for name, shape in zip(self.names[1 : self.n_states], known[1:]):
            if not whole.is_compatible_with(shape):
                raise ValueError(f"var {whole} and {name} {shape} do not have the same shape")
            whole = whole.merge_with(shape)
        for at in self.scalar_at:
            if not shapes[at].is_compatible_with(()):
                raise ValueError(f"{self.names[at]} must be a scalar, not of shape {shapes[at]}")
        grad = shapes[self.grad_at]
        wanted = whole
        if self.indices_at is not None and whole.sizes is not None:
            wanted = shapes[self.indices_at].with_rank(1).concatenate(whole.with_rank_at_least(1)[1:])
        if not wanted.is_compatible_with(grad):
            raise ValueError(f"var of shape {whole} takes a gradient of shape {wanted}, not {grad}")
        return None if self.is_resource else whole

    def bind(self, k: KernelContext) -> Callable[..., Any]:
        xp, attrs = k.xp, k.attrs
        n_states, grad_at, indices_at, scalar_at = (
            self.n_states,
            self.grad_at,
            self.indices_at,
            self.scalar_at,
        )
        apply = _blocks(self, xp, attrs, _Scratch(xp, k.attrs["T"].np, self.scratch))
        is_resource, names, rounds = self.is_resource, self.names, rounds_for(k)

        def memory(states: tuple[VariableState, ...]) -> list[Any]:
            arrays = [state.writable() for state in states]
            shape = arrays[0].shape
            for at, array in enumerate(arrays):
                if array.shape != shape:
                    raise _unlike(k, names[at], array.shape, states[0], shape)
            return arrays

        def dense(states: tuple[VariableState, ...], inputs: tuple[Any, ...], scalars: Any) -> None:
            grad, arrays = inputs[grad_at], memory(states)
            if grad.shape != arrays[0].shape:
                raise _unlike(k, names[grad_at], grad.shape, states[0], arrays[0].shape)
            apply(arrays, grad, scalars)

        def sparse(states: tuple[VariableState, ...], inputs: tuple[Any, ...], scalars: Any) -> None:
            grad, indices, arrays = inputs[grad_at], inputs[indices_at], memory(states)
            wanted = indices.shape + arrays[0].shape[1:]
            if grad.shape != wanted:
                raise _unlike(k, names[grad_at], grad.shape, states[0], wanted)
            rows = checked_rows(xp, indices, arrays[0].shape[0], states[0].name)
            for chosen in rounds(rows):
                picked = rows[chosen]
                gathered = [array[picked] for array in arrays]
                apply(gathered, grad[chosen], scalars)
                for array, new in zip(arrays, gathered):
                    array[picked] = new

        update = dense if indices_at is None else sparse

        def run(*inputs: Any) -> Any:
            states = inputs[:n_states]
            scalars = [inputs[i] for i in scalar_at]
            for i, scalar in zip(scalar_at, scalars):
                if scalar.ndim:
                    raise _no_scalar(names[i], scalar)
            scalars = self.prepare(xp, attrs, scalars)
            # Locks are taken in one order everywhere, so that two steps cannot wait for each other.
            ordered = states if n_states == 1 else sorted(states, key=id)
            for state in ordered:
                state.lock.acquire()
            try:
                update(states, inputs, scalars)
            finally:
                for state in ordered:
                    state.lock.release()
            return () if is_resource else states[0]

        return run


def plain(scalars: list[Any]) -> list[Any]:
    """The scalar inputs as NumPy scalars (on a GPU still arrays of rank 0)."""
    return [scalar[()] for scalar in scalars]


def _no_scalar(name: str, value: Any) -> InvalidArgumentError:
    return InvalidArgumentError(None, None, f"{name} is not a scalar: it has shape {list(value.shape)}")


def _unlike(
    k: KernelContext, name: str, shape: tuple[int, ...], var: VariableState, wanted: tuple[int, ...]
) -> InvalidArgumentError:
    return InvalidArgumentError(
        None, None, f"{k.type}: {name} has shape {list(shape)}; variable '{var.name}' takes {list(wanted)}"
    )


class _Scratch(threading.local):
    """A thread's own work arrays for one node: plans run in several threads at once."""

    def __init__(self, xp: Any, dtype: Any, count: int) -> None:
        self._xp, self.dtype, self._count = xp, dtype, count
        self._size = -1

    def of(self, size: int) -> list[Any]:
        """`count` arrays of `size` elements, with whatever they hold."""
        if size != self._size:
            self._size = size
            self._arrays = [self._xp.empty(size, self.dtype) for _ in range(self._count)]
        return self._arrays


_COMPILED_TYPES = (np.dtype(np.float32), np.dtype(np.float64))


class CompiledSteps:
    """The steps of core/training_jit.py, once they are there."""

    def __init__(self) -> None:
        self.get: Callable[[Any], Any] = lambda key: None
        self._trained = 0
        self._is_begun = False

    def count(self, elements: int) -> None:
        """Note a step made without them; begin to load them when these have become many."""
        self._trained += elements
        if self._trained >= _COMPILE_AFTER and not self._is_begun:
            self._is_begun = True
            loader = threading.Thread(target=self.load, name="graphrt-training-compile", daemon=True)
            loader.start()
            atexit.register(loader.join, _LOAD_S)  # the interpreter must not go while LLVM works in it

    def load(self) -> bool:
        """Compile them. False where numba is not installed or cannot compile here."""
        self._is_begun = True
        try:
            from graphrt.core import training_jit
        except ImportError:
            return False
        except Exception as error:  # numba's own errors share no base with anything here
            warnings.warn(
                "numba could not compile the optimizers' steps, which stay on NumPy (same values, slower): "
                f"{error}",
                RuntimeWarning,
                stacklevel=2,
            )
            return False
        self.get = training_jit.STEPS.get
        return True


compiled_steps = CompiledSteps()


def _blocks(
    update: Update, xp: Any, attrs: dict[str, Any], scratch: _Scratch
) -> Callable[[list[Any], Any, Any], None]:
    step = update.step
    has_compiled = (
        update.compiled and xp is np and not attrs.get("use_nesterov") and scratch.dtype in _COMPILED_TYPES
    )
    key = (update.compiled, scratch.dtype)

    def apply(arrays: list[Any], grad: Any, scalars: Any) -> None:
        flat = arrays if grad.ndim == 1 else [array.reshape(-1) for array in arrays]
        grad = grad.reshape(-1)  # a copy in that order where it is not contiguous
        size = grad.size
        if has_compiled:
            compiled = compiled_steps.get(key)
            if compiled is not None:
                compiled(*flat, np.ascontiguousarray(grad), *plain(scalars))
                return
            compiled_steps.count(size)
        if size <= BLOCK or xp is not np:
            step(xp, attrs, scratch.of(size), flat, grad, scalars)
            return
        work = scratch.of(BLOCK)
        for start in range(0, size, BLOCK):
            stop = start + BLOCK
            if stop > size:
                work = [w[: size - start] for w in work]
            step(xp, attrs, work, [array[start:stop] for array in flat], grad[start:stop], scalars)

    return apply


def training_op(
    name: str,
    inputs: str,
    slots: str = "",
    ref: bool = True,
    dense: bool = True,
    sparse: bool = True,
    sparse_inputs: str = "",
    **attrs: str,
) -> Callable[[type], type]:
    """Register the decorated Update as the Apply ops of an optimizer; see the module's text.

    Args:
      inputs: what follows the variable and its slots, in TensorFlow's order; `grad` or `delta` is the
        gradient, and the others are scalars.
      slots: names of the slots.
      ref, dense, sparse: whether there are ops on ref variables, with dense and with sparse gradients.
      sparse_inputs: `inputs` of the sparse form where its names differ.
    """

    def register(cls: type) -> type:
        for is_sparse in [False] * dense + [True] * sparse:
            wanted = (sparse_inputs or inputs) if is_sparse else inputs
            for is_resource in [False] * ref + [True]:
                _register(cls, name, ["var", *slots.split()], wanted.split(), is_sparse, is_resource, attrs)
        return cls

    return register


def _register(
    cls: type,
    name: str,
    states: list[str],
    rest: list[str],
    is_sparse: bool,
    is_resource: bool,
    attrs: dict[str, str],
) -> None:
    full_name = f"{'Resource' if is_resource else ''}{'Sparse' if is_sparse else ''}Apply{name}"
    ordered: list[str] = []
    for item in rest:
        ordered.append(item)
        if is_sparse and item in _GRADIENTS:
            ordered.append("indices")
    kinds = {"indices": "Tindices", "global_step": "int64"}
    arguments = [f"{state}: {'resource' if is_resource else 'Ref(T)'}" for state in states]
    arguments += [f"{item}: {kinds.get(item, 'T')}" for item in ordered]
    signature = f"{full_name}({', '.join(arguments)})" + ("" if is_resource else " -> out: Ref(T)")
    names = (*states, *ordered)
    facts: dict[str, Any] = {
        "__doc__": cls.__doc__,
        "n_states": len(states),
        "names": names,
        "is_resource": is_resource,
        "grad_at": next(i for i, n in enumerate(names) if n in _GRADIENTS),
        "indices_at": names.index("indices") if is_sparse else None,
        "scalar_at": tuple(
            i for i, n in enumerate(names) if i >= len(states) and n not in (*_GRADIENTS, "indices")
        ),
        "samples": _samples(full_name, states, ordered, is_sparse, is_resource, attrs),
    }
    if is_resource:
        facts["host_inputs"] = tuple(range(len(states)))
    types: dict[str, Any] = {
        "T": NUMBERS,
        **({"Tindices": INDEX} if is_sparse else {}),
        "use_locking": "bool = False",
    }
    op(signature, **types, **attrs)(type(full_name, (cls,), facts))


# Scalar inputs of the samples, by name.
_SCALARS = {
    "lr": 0.1,
    "alpha": 0.1,
    "rho": 0.9,
    "momentum": 0.8,
    "epsilon": 1e-3,
    "beta1_power": 0.81,
    "beta2_power": 0.98,
    "beta1": 0.9,
    "beta2": 0.99,
    "beta": 0.9,
    "l1": 0.02,
    "l2": 0.03,
    "l2_shrinkage": 0.01,
    "lr_power": -0.5,
    "sign_decay": 0.7,
    "logbase": 1.0,
}


def _samples(
    full_name: str,
    states: list[str],
    ordered: list[str],
    is_sparse: bool,
    is_resource: bool,
    attrs: dict[str, str],
) -> list[Program]:
    """Two steps with each value of the boolean attrs, and the branches that scalars choose."""

    def make(
        why: str,
        options: dict[str, Any],
        shape: tuple[int, ...] = (4, 3),
        dtype: str = "float32",
        **scalars: float,
    ) -> Program:
        values = {**_SCALARS, **scalars}

        def build(tf: Any) -> list[Any]:
            kind = getattr(tf, dtype)
            count = int(np.prod(shape))
            rise = np.linspace(-1.0, 1.0, count).reshape(shape)
            variables = [
                tf.Variable(
                    tf.constant(rise if i == 0 else rise**2 * 0.01 + 0.5 * i, kind), use_resource=is_resource
                )
                for i in range(len(states))
            ]
            call: dict[str, Any] = {
                name: v.handle if is_resource else v._ref() for name, v in zip(states, variables)
            }
            picked = [2, 0, 2][: max(1, shape[0])] if shape[0] else []
            for item in ordered:
                if item == "indices":
                    call[item] = tf.constant(picked, tf.int64)
                elif item in _GRADIENTS:
                    call[item] = tf.constant(np.cos(7 * rise[picked] if is_sparse else 5 * rise), kind)
                elif item == "global_step":
                    call[item] = tf.constant(3, tf.int64)
                else:
                    call[item] = tf.constant(values[item], kind)
            update = getattr(tf.raw_ops, full_name)(**call, **options)
            return [[v.initializer for v in variables], update, update, variables]

        return program(build, why=why)

    made = [
        make("two steps", {}),
        make("double precision", {}, dtype="float64"),
        make("empty", {}, shape=(0, 3)),
        make("vector", {}, shape=(5,)),
    ]
    for attr, declared in attrs.items():
        made.append(make(f"the other {attr}", {attr: declared.endswith("False")}))
    if "l1" in ordered:
        made.append(make("without l1", {}, l1=0.0))
    if "lr_power" in ordered:
        made.append(make("another power", {}, lr_power=-0.6))
        made.append(make("another power, scaled", {"multiply_linear_by_lr": True}, lr_power=-0.6))
    return made
