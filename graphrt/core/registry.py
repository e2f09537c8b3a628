"""What an op is: one class with its signature, facts, shape rule, kernel, gradient and samples.

    @op("Softmax(logits: T) -> softmax: T", T=FLOATS)
    class Softmax:
        '''Softmax over the last axis: exp(x - max x) / sum exp(x - max x).'''

        def shape(self, s, logits):
            return logits.with_rank_at_least(1)

        def compute(self, k, logits, out): ...
        def gradient(self, op, dy): ...
        samples = [sample(normal(4, 10))]

The decorator turns the class into an `OpDef`, which is callable and builds a node: `Softmax(x, name="probs")`
returns a Tensor, a list of them (`N*T`, `list(T)` or several outputs) or the Operation where there is no
output. Gradients and public functions are written with these calls; `graphrt.raw_ops` is the same objects.

**Shape rule** `shape(self, s, *inputs)`: the inputs' TensorShapes in signature order (a list of them for a
sequence argument), and `s`, a ShapeContext: `s.attrs`, `s.value(i)` (the constant value of flat input i, or
None), `s.partial(i)` (a shape vector's value with unknown parts, as a TensorShape), `s.handle(i)` (dtype and
shape behind a resource). Returns a TensorShape an output (a list where there are several, None for unknown).
ValueError says why the shapes do not fit; `apply_op` adds the op and the user's line.

**Kernel** `compute(self, k, *inputs[, out])`: arrays in, an array or a tuple of arrays out. `k` is a
KernelContext: `k.xp` (numpy or a GPU's array module), `k.attrs`, `k.output_dtypes`, `k.state(make)`. A
kernel whose last parameter is called `out` writes into it where it is not None, and returns it. Inputs are
never written, but for an input named in `overwrites` that the plan passes as `out`. Values of rank 0 are 0-d
arrays or NumPy scalars. A ref input (`Ref(T)`) and a resource are the `VariableState` or other resource
object itself.
  - `hoist(self, k)`: the value of a node that is the same in every step (Const, variables' handles): bound,
  not run. - `bind(self, k)`: returns the callable that a plan calls, where attrs decide much; by default
  `compute` with `k` bound. - `start(self, k, step, done, *inputs)`: for `asynchronous` ops: begins, and
  calls `done(outputs)` or `done(error)` once,
    from any thread.

**Facts**, as class attributes:
  stateful        not folded, not shared, run once where TensorFlow would
  asynchronous    may wait: a plan is cut here; has `start` in place of `compute`
  blocking        user code, files, locks: runs on a thread of its own
  aliases         flat inputs of which the output may be a view, as (0,)
  overwrites      flat inputs whose buffer `out` may be (same shape and dtype, last use)
  host_inputs, host_outputs   flat positions that stay in host memory on a GPU (negative ones from the end),
  or ALL cpu_only        no GPU kernel
  keeps_inputs    may hold its inputs' arrays after it returns. By default: asynchronous, blocking and
  stateful ops, but not
                  those on a ref or resource, since variables copy what they take: an op that stores an array
                  in a resource (a stack, a tensor array) says True
  unfoldable      never constant-folded though stateless
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from graphrt.core.dtypes import DType
from graphrt.core.shapes import UNKNOWN, TensorShape
from graphrt.core.signature import Arg, Attr, Signature, parse_signature

ALL = "all"
OPS: dict[str, OpDef] = {}
_completing = threading.RLock()


class OpDef:
    """A registered op: its Signature, facts and methods. Calling it builds a node in the default graph.

    Attributes:
      name, inputs, outputs, attrs: the Signature's.
      impl: the instance of the op's class.
      stateful, asynchronous, blocking, aliases, overwrites, host_inputs, host_outputs, cpu_only: its facts.
      writes_out: the kernel takes `out`.
    """

    def __init__(self, signature: Signature, impl: Any) -> None:
        self._complete(signature, impl)

    @classmethod
    def later(cls, text: str, attrs: dict[str, Any], impl: type) -> OpDef:
        """An op whose signature is parsed when it is first looked at: most programs use few of the many
        ops."""
        made = cls.__new__(cls)
        made.name = made.__name__ = text[: text.index("(")].strip()
        made.__doc__ = impl.__doc__
        made._pending = text, attrs, impl
        return made

    def __getattr__(self, name: str) -> Any:
        # Reached only for what is not there yet; threads that meet here wait for the first.
        with _completing:
            pending = self.__dict__.get("_pending")
            if pending is not None:
                text, attrs, impl = pending
                self._complete(parse_signature(text, attrs), impl())
                del self._pending
        return object.__getattribute__(self, name)

    def _complete(self, signature: Signature, impl: Any) -> None:
        self.name, self.inputs, self.outputs, self.attrs = (
            signature.name,
            signature.inputs,
            signature.outputs,
            signature.attrs,
        )
        self.impl = impl
        self.__doc__ = type(impl).__doc__
        self.__name__ = self.name
        fact = lambda name, default: getattr(impl, name, default)  # noqa: E731
        self.stateful: bool = fact("stateful", False)
        self.asynchronous: bool = fact("asynchronous", False)
        self.blocking: bool = fact("blocking", False)
        self.aliases: tuple[int, ...] = fact("aliases", ())
        self.overwrites: tuple[int, ...] = fact("overwrites", ())
        self.host_inputs: Any = fact("host_inputs", ())
        self.host_outputs: Any = fact("host_outputs", ())
        self.cpu_only: bool = fact("cpu_only", False)
        self.unfoldable: bool = fact("unfoldable", False)
        self.samples: list[Any] = fact("samples", [])
        self.has_hoist = hasattr(impl, "hoist")
        self.shape_rule: Callable[..., Any] | None = fact("shape", None)
        self.gradient: Callable[..., Any] | None = fact("gradient", None)
        self.has_ref_input = any(a.is_ref for a in self.inputs)
        takes_state = self.has_ref_input or any(
            a.dtype is not None and a.dtype.name == "resource" for a in self.inputs
        )
        self.keeps_inputs: bool = fact(
            "keeps_inputs", self.asynchronous or self.blocking or self.stateful and not takes_state
        )
        self.has_ref_output = any(a.is_ref for a in self.outputs)
        compute = fact("compute", None)
        self.writes_out = fact("writes_out", False)
        if compute is not None and not self.writes_out:
            parameters = (
                compute.__code__.co_varnames[: compute.__code__.co_argcount]
                if hasattr(compute, "__code__")
                else ()
            )
            self.writes_out = bool(parameters) and parameters[-1] == "out"
        # The common case of `__call__`: one tensor out.
        self.single_output = len(self.outputs) == 1 and not self.outputs[0].is_sequence

    @property
    def has_gradient(self) -> bool:
        return self.gradient is not None

    def __call__(self, *args: Any, name: str | None = None, **named: Any) -> Any:
        from graphrt.core.apply import apply_op

        return apply_op(self, args, named, name)

    def __repr__(self) -> str:
        return f"<op {self.name}>"

    @property
    def __signature__(self) -> inspect.Signature:
        keyword = inspect.Parameter.KEYWORD_ONLY
        ordered = [inspect.Parameter(a.name, keyword) for a in self.inputs]
        inferred = self.inferred_attrs()
        from graphrt.core.signature import REQUIRED

        explicit = [a for n, a in self.attrs.items() if n not in inferred]
        ordered += [inspect.Parameter(a.name, keyword) for a in explicit if a.default is REQUIRED]
        ordered += [
            inspect.Parameter(a.name, keyword, default=a.default)
            for a in explicit
            if a.default is not REQUIRED
        ]
        return inspect.Signature([*ordered, inspect.Parameter("name", keyword, default=None)])

    def inferred_attrs(self) -> set[str]:
        """The attrs that the inputs decide: their types and counts."""
        return {n for a in self.inputs for n in (a.type_attr, a.number_attr, a.list_attr) if n}

    def flat_input_args(self, counts: Iterable[int]) -> list[Arg]:
        """The argument of each flat input, given how many tensors each argument has."""
        return [a for a, n in zip(self.inputs, counts) for _ in range(n)]

    def counts(self, args: list[Arg], attrs: dict[str, Any]) -> list[int]:
        """How many tensors each of `args` has under `attrs`."""
        return [
            attrs[a.number_attr] if a.number_attr else len(attrs[a.list_attr]) if a.list_attr else 1
            for a in args
        ]

    def infer_shapes(self, context: Any, flat: list[TensorShape], count: int) -> list[TensorShape]:
        """The `count` output shapes that the shape rule gives for flat input shapes; ValueError where they
        do not fit."""
        rule = self.shape_rule
        if rule is None:
            return [UNKNOWN] * count
        if len(flat) == len(self.inputs) and not any(a.is_sequence for a in self.inputs):
            args: list[Any] = flat
        else:
            args, at = [], 0
            for arg, n in zip(self.inputs, self.counts(self.inputs, context.attrs)):
                args.append(flat[at : at + n] if arg.is_sequence else flat[at])
                at += n
        made = rule(context, *args)
        if made is None:
            return [UNKNOWN] * count
        shapes = [made] if isinstance(made, TensorShape) else [UNKNOWN if m is None else m for m in made]
        if len(shapes) != count:
            raise AssertionError(
                f"the shape rule of {self.name} gives {len(shapes)} shapes for {count} outputs"
            )
        return shapes

    def types(self, args: list[Arg], attrs: dict[str, Any]) -> list[DType]:
        """The dtype of each flat tensor of `args` under `attrs`; reference types where the argument is a
        Ref."""
        made: list[DType] = []
        for a in args:
            if a.list_attr:
                found = list(attrs[a.list_attr])
            else:
                one = a.dtype if a.dtype is not None else attrs[a.type_attr]
                found = [one] * (attrs[a.number_attr] if a.number_attr else 1)
            made += [d._as_ref for d in found] if a.is_ref else found
        return made


def op(signature: str, **attrs: Any) -> Callable[[type], OpDef]:
    """Register the decorated class as an op; see the module's text. Returns its OpDef."""

    def register(cls: type) -> OpDef:
        made = OpDef.later(signature, attrs, cls)
        if made.name in OPS:
            raise ValueError(
                f"op {made.name} is registered twice: by {type(OPS[made.name].impl).__module__} and "
                f"{cls.__module__}"
            )
        OPS[made.name] = made
        return made

    return register


def lookup(name: str) -> OpDef | None:
    """The op called `name`, or None."""
    return OPS.get(name)


class ShapeContext:
    """What a shape rule may ask beside the inputs' shapes: attrs, constant values, resources' shapes."""

    __slots__ = ("attrs", "tensors", "handles", "op_def")

    def __init__(self, op_def: OpDef, attrs: dict[str, Any], tensors: list[Any]) -> None:
        self.op_def, self.attrs, self.tensors = op_def, attrs, tensors
        self.handles: dict[int, tuple[DType, TensorShape]] = {}

    def value(self, i: int) -> np.ndarray | None:
        """The constant value of flat input i, or None where it is not known while the graph is built."""
        from graphrt.core.constant_value import constant_value

        return constant_value(self.tensors[i])

    def partial(self, i: int) -> TensorShape:
        """Flat input i, an integer vector, as a shape: unknown (or -1) where an element is not known."""
        from graphrt.core.constant_value import constant_value_as_shape

        return constant_value_as_shape(self.tensors[i])

    def elements(self, i: int) -> list[int | None] | None:
        """The known elements of flat input i, an integer vector that may be packed from scalars; None where
        even their number is unknown."""
        value = self.value(i)
        if value is not None:
            return value.tolist()
        tensor = self.tensors[i]
        if tensor.op.type == "Pack":
            from graphrt.core.constant_value import constant_value

            return [None if v is None else int(v) for v in map(constant_value, tensor.op.inputs)]
        sizes = tensor.shape.sizes
        return [None] * sizes[0] if sizes and sizes[0] is not None else None

    def handle(self, i: int) -> tuple[DType, TensorShape] | None:
        """The (dtype, shape) of what flat input i, a resource, refers to; None where it is not known."""
        return self.tensors[i].handle

    def set_handle(self, i: int, dtype: DType, shape: TensorShape) -> None:
        """Flat output i is a resource that refers to `dtype` values of `shape`."""
        self.handles[i] = (dtype, shape)

    def unknown(self) -> TensorShape:
        return UNKNOWN


class KernelContext:
    """What a kernel may use beside its inputs; made once for each node of a plan.

    Attributes:
      name, type: the node's.
      attrs: its attrs.
      xp: the array module of its device: numpy, or a GPU's.
      input_dtypes, output_dtypes: DTypes of flat inputs and outputs.
      output_shapes: static shapes of the outputs.
      device: the runtime device, with `.name` and `.xp`.
      session: the worker session: `.resources` (containers), `.node_state`, `.functions`.
    """

    __slots__ = (
        "name",
        "type",
        "attrs",
        "xp",
        "input_dtypes",
        "output_dtypes",
        "output_shapes",
        "device",
        "session",
        "node",
    )

    def __init__(
        self,
        name: str,
        type: str,
        attrs: dict[str, Any],
        input_dtypes: list[DType],
        output_dtypes: list[DType],
        output_shapes: list[TensorShape] | None = None,
        xp: Any = np,
        device: Any = None,
        session: Any = None,
        node: Any = None,
    ) -> None:
        self.name, self.type, self.attrs, self.xp = name, type, attrs, xp
        self.input_dtypes, self.output_dtypes = input_dtypes, output_dtypes
        self.output_shapes = output_shapes or [UNKNOWN] * len(output_dtypes)
        self.device, self.session, self.node = device, session, node

    @property
    def dtype(self) -> np.dtype:
        """The NumPy dtype of the first output."""
        return self.output_dtypes[0].np

    @property
    def resources(self) -> Any:
        """The containers of the worker session (core/resources.py)."""
        return self.session.resources

    def state(self, make: Callable[[], Any]) -> Any:
        """The state of this node in its worker session: made by `make()` once, then the same in every
        plan."""
        return self.session.node_state(self.name, make)

    def empty(self, shape: tuple[int, ...], out: Any = None, dtype: Any = None) -> Any:
        """`out` where it is given, else a fresh array of `shape` in the first output's dtype."""
        return out if out is not None else self.xp.empty(shape, dtype or self.output_dtypes[0].np)


__all__ = ["ALL", "OPS", "Arg", "Attr", "KernelContext", "OpDef", "ShapeContext", "lookup", "op"]
