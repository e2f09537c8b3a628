"""Ops that TensorFlow's optimizer makes of several: its masters send them to workers. graphrt never makes
one.

Each is a product or convolution and what comes after it, by the kernels of the ops that it was made of:
`fused_ops` names those that follow the first, and takes its operands from `args` in turn.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from graphrt.core.constant_value import bound_kernel
from graphrt.core.dtypes import bfloat16, float32, float64, half, int8
from graphrt.core.registry import OPS, KernelContext, ShapeContext, op
from graphrt.core.samples import empty, normal, positive, sample
from graphrt.core.shapes import UNKNOWN, TensorShape
from graphrt.ops import matmul as _matmul  # noqa: F401  the ops below are made of its
from graphrt.ops import nn_activations as _activations  # noqa: F401
from graphrt.ops import nn_conv as _convolutions  # noqa: F401
from graphrt.ops import nn_norm as _norms  # noqa: F401

_WHY = "TensorFlow's optimizer makes it, and offers no way to build it"
_FUSED = {"fused_ops": "list(string) = []", "epsilon": "float = 0.0001", "leakyrelu_alpha": "float = 0.2"}
Follow = Callable[[Any, Any], Any]


def _like(k: KernelContext, kind: str, count: int, **attrs: Any) -> Callable[..., Any]:
    """The kernel of op `kind` over `count` inputs of the node's dtype, as a function of its inputs."""
    op_def = OPS[kind]
    dtype = k.output_dtypes[0]
    filled = {name: a.default for name, a in op_def.attrs.items()}
    filled.update({name: value for name, value in k.attrs.items() if name in filled}, **attrs)
    filled["T"] = dtype
    context = KernelContext(
        k.name, kind, filled, [dtype] * count, [dtype], None, k.xp, k.device, k.session, None
    )
    kernel = bound_kernel(op_def, context)
    return (lambda *inputs: kernel(*inputs, None)) if op_def.writes_out else kernel


def _activation(name: str, k: KernelContext) -> Callable[[Any], Any]:
    """The activation that `fused_ops` calls `name`.

    Raises:
      ValueError: graphrt does not know it.
    """
    xp, dtype = k.xp, k.dtype
    if name in ("Relu", "Relu6", "Elu", "Tanh", "Sigmoid"):
        return _like(k, name, 1)
    if name == "LeakyRelu":
        return _like(k, name, 1, alpha=k.attrs["leakyrelu_alpha"])
    if name == "GeluApproximate":
        scale, cubic = dtype.type(0.7978845608028654), dtype.type(0.044715)
        half_, one = dtype.type(0.5), dtype.type(1)
        return lambda x: half_ * x * (one + xp.tanh(scale * (x + cubic * x * x * x)))
    if name == "GeluExact":
        erf, half_, one, root = (
            _like(k, "Erf", 1),
            dtype.type(0.5),
            dtype.type(1),
            dtype.type(0.7071067811865476),
        )
        return lambda x: half_ * x * (one + erf(x * root))
    if name in ("_MklSwish", "Swish"):
        sigmoid = _like(k, "Sigmoid", 1)
        return lambda x: x * sigmoid(x)
    if name in ("_FusedHardSwish", "HardSwish"):
        three, six = dtype.type(3), dtype.type(6)
        return lambda x: x * xp.clip(x + three, 0, six) / six
    raise ValueError(f"graphrt does not know the fused op '{name}'")


def _followers(k: KernelContext, data_format: bytes) -> Callable[..., Any]:
    """What comes after the first op: a function of its result and the other operands."""
    channels_first = data_format.startswith(b"NC")
    steps: list[tuple[str, Any]] = []

    def along_channels(value: Any, like: Any) -> Any:
        return value.reshape((-1,) + (1,) * (like.ndim - 2)) if channels_first and like.ndim > 2 else value

    def bias(y: Any, operands: Any) -> Any:
        return k.xp.add(y, along_channels(next(operands), y))

    def normalise(y: Any, operands: Any) -> Any:
        scale, offset, mean, variance = [along_channels(next(operands), y) for _ in range(4)]
        factor = scale / k.xp.sqrt(variance + k.dtype.type(k.attrs["epsilon"]))
        return (y - mean) * factor + offset

    for raw_name in k.attrs["fused_ops"]:
        name = raw_name.decode()
        if name == "BiasAdd" or name == "BiasAddV1":
            steps.append((name, bias))
        elif name == "FusedBatchNorm":
            steps.append((name, normalise))
        elif name in ("Add", "AddV2", "Sum"):
            steps.append((name, lambda y, operands: k.xp.add(y, next(operands))))
        elif name in ("Mul", "BinaryMul"):
            steps.append((name, lambda y, operands: k.xp.multiply(y, next(operands))))
        else:
            activate = _activation(name, k)
            steps.append((name, lambda y, operands, activate=activate: activate(y)))

    def follow(y: Any, args: Any) -> Any:
        operands = iter(args)
        for _, step in steps:
            y = step(y, operands)
        return y

    return follow


class _Fused:
    """Base: an op of two operands, and what follows it.

    Attributes:
      first: the op that comes first.
    """

    first = ""
    layout = b"NHWC"

    def shape(self, s: ShapeContext, *inputs: Any) -> TensorShape:
        context = ShapeContext(OPS[self.first], s.attrs, getattr(s, "tensors", ()))
        return OPS[self.first].impl.shape(context, inputs[0], inputs[1])

    def bind(self, k: KernelContext) -> Callable[..., Any]:
        for unusual, usual in (("filter_format", b"HWIO"), ("padding_list", [])):
            if k.attrs.get(unusual, usual) != usual:
                raise ValueError(
                    f"graphrt takes {k.type} with {unusual} {usual!r} only, not {k.attrs[unusual]!r}"
                )
        first = _like(k, self.first, 2)
        follow = _followers(k, k.attrs.get("data_format", self.layout))
        dtype = k.dtype

        def fused(a: Any, b: Any, *args: Any) -> Any:
            made = follow(first(a, b), args)
            return made if made.dtype == dtype else made.astype(dtype)

        return fused


_STRIDES = [1, 1, 1, 1]


@op(
    "_FusedConv2D(input: T, filter: T, args: TArgs, host_args: num_host_args*float) -> output: T",
    T=(half, float32, float64, int8),
    TArgs="list(type)",
    num_args="int >= 0",
    num_host_args="int >= 0 = 0",
    strides="list(int)",
    padding="string in {SAME, VALID, EXPLICIT}",
    explicit_paddings="list(int) = []",
    data_format="string = 'NHWC'",
    filter_format="string = 'HWIO'",
    dilations="list(int) = [1, 1, 1, 1]",
    use_cudnn_on_gpu="bool = True",
    **_FUSED,
)
class FusedConv2D(_Fused):
    """Conv2D, then what `fused_ops` names."""

    first = "Conv2D"
    samples = [
        sample(
            normal(2, 5, 5, 3),
            normal(3, 3, 3, 4),
            [normal(4)],
            [normal()],
            num_args=1,
            strides=_STRIDES,
            padding="SAME",
            fused_ops=["BiasAdd", "Relu"],
            tensorflow=False,
            why=_WHY,
        )
    ]


@op(
    "_FusedDepthwiseConv2dNative(input: T, filter: T, args: num_args*T) -> output: T",
    T=(half, bfloat16, float32, float64),
    num_args="int >= 0",
    strides="list(int)",
    padding="string in {SAME, VALID}",
    data_format="string = 'NHWC'",
    dilations="list(int) = [1, 1, 1, 1]",
    **_FUSED,
)
class FusedDepthwiseConv2dNative(_Fused):
    """DepthwiseConv2dNative, then what `fused_ops` names."""

    first = "DepthwiseConv2dNative"
    samples = [
        sample(
            normal(2, 5, 5, 3),
            normal(3, 3, 3, 2),
            [normal(6)],
            strides=_STRIDES,
            padding="VALID",
            fused_ops=["BiasAdd", "Relu6"],
            tensorflow=False,
            why=_WHY,
        )
    ]


@op(
    "_FusedConv3D(input: T, filter: T, args: num_args*T) -> output: T",
    T=(bfloat16, float32, half),
    num_args="int >= 0",
    strides="list(int) >= 5",
    padding="string in {SAME, VALID}",
    data_format="string = 'NDHWC'",
    dilations="list(int) = [1, 1, 1, 1, 1]",
    padding_list="list(int) = []",
    **_FUSED,
)
class FusedConv3D(_Fused):
    """Conv3D, then what `fused_ops` names."""

    first = "Conv3D"
    layout = b"NDHWC"
    samples = [
        sample(
            normal(1, 3, 4, 4, 2),
            normal(2, 2, 2, 2, 3),
            [normal(3)],
            strides=[1] * 5,
            padding="SAME",
            fused_ops=["BiasAdd"],
            tensorflow=False,
            why=_WHY,
        )
    ]


@op(
    "_FusedMatMul(a: T, b: T, args: num_args*T) -> product: T",
    transpose_a="bool = False",
    transpose_b="bool = False",
    T=(bfloat16, half, float32),
    num_args="int >= 0",
    **_FUSED,
)
class FusedMatMul(_Fused):
    """MatMul, then what `fused_ops` names."""

    first = "MatMul"
    samples = [
        sample(normal(3, 4), normal(4, 5), [normal(5)], fused_ops=["BiasAdd"], tensorflow=False, why=_WHY),
        sample(
            normal(3, 4),
            normal(5, 4),
            [normal(5)],
            transpose_b=True,
            fused_ops=["BiasAdd", "Elu"],
            tensorflow=False,
            why=_WHY,
        ),
        sample(
            empty(0, 4),
            normal(4, 5),
            [normal(5)],
            fused_ops=["BiasAdd", "LeakyRelu"],
            tensorflow=False,
            why=_WHY,
        ),
    ]


@op(
    "_MklFusedBatchMatMulV2(x: T, y: T, args: num_args*T) -> output: T",
    T=(bfloat16, half, float32),
    adj_x="bool = False",
    adj_y="bool = False",
    num_args="int >= 0",
    **_FUSED,
)
class FusedBatchMatMulV2(_Fused):
    """BatchMatMulV2, then what `fused_ops` names."""

    first = "BatchMatMulV2"
    samples = [
        sample(
            normal(2, 3, 4),
            normal(2, 4, 5),
            [normal(1), normal(2, 3, 5)],
            fused_ops=["Mul", "Add"],
            tensorflow=False,
            why=_WHY,
        )
    ]


@op(
    "_FusedBatchNormEx(x: T, scale: U, offset: U, mean: U, variance: U, side_input: num_side_inputs*T) -> y: "
    "T, batch_mean: U, "
    "batch_variance: U, reserve_space_1: U, reserve_space_2: U, reserve_space_3: U",
    T=(half, float32, bfloat16),
    U=(float32,),
    epsilon="float = 0.0001",
    exponential_avg_factor="float = 1.0",
    num_side_inputs="int >= 0 = 0",
    activation_mode="string = 'Identity'",
    data_format="string in {NHWC, NCHW} = 'NHWC'",
    is_training="bool = True",
)
class FusedBatchNormEx:
    """FusedBatchNormV3 of x, plus a side input, then an activation."""

    def shape(
        self, s: ShapeContext, x: TensorShape, scale: Any, offset: Any, mean: Any, variance: Any, side: Any
    ) -> list[Any]:
        return [x, scale, scale, scale, scale, UNKNOWN]

    def bind(self, k: KernelContext) -> Callable[..., Any]:
        mode = k.attrs["activation_mode"].decode()
        if mode not in ("Identity", "Relu"):
            raise ValueError(f"graphrt does not know the activation '{mode}' of {k.type}")
        op_def = OPS["FusedBatchNormV3"]
        attrs = {name: k.attrs.get(name, a.default) for name, a in op_def.attrs.items()}
        context = KernelContext(
            k.name,
            op_def.name,
            attrs,
            k.input_dtypes[:5],
            k.output_dtypes,
            None,
            k.xp,
            k.device,
            k.session,
            None,
        )
        normalise, xp = bound_kernel(op_def, context), k.xp

        def run(*inputs: Any) -> Any:
            y, *rest = normalise(*inputs[:5])
            for side in inputs[5:]:
                y = y + side
            return (xp.maximum(y, 0) if mode == "Relu" else y, *rest)

        return run

    samples = [
        sample(
            normal(2, 3, 3, 4),
            positive(4),
            normal(4),
            empty(0),
            empty(0),
            [normal(2, 3, 3, 4)],
            activation_mode="Relu",
            tensorflow=False,
            why=_WHY,
        ),
        sample(
            normal(2, 3, 3, 4),
            positive(4),
            normal(4),
            normal(4),
            positive(4),
            [normal(2, 3, 3, 4)],
            activation_mode="Relu",
            is_training=False,
            tensorflow=False,
            why=_WHY,
        ),
    ]


class _Composed:
    """Base of elementwise ops of one input."""

    def shape(self, s: ShapeContext, x: TensorShape, *others: Any) -> TensorShape:
        return x


@op("_MklSwish(features: T) -> activations: T", T="type in {float, bfloat16, half} = float")
class Swish(_Composed):
    """x times the sigmoid of x."""

    def bind(self, k: KernelContext) -> Callable[..., Any]:
        return _activation("_MklSwish", k)

    samples = [sample(normal(3, 4), tensorflow=False, why=_WHY)]


@op("_MklFusedMish(features: T) -> activations: T", T=(bfloat16, float32, half))
class Mish(_Composed):
    """x times tanh(softplus(x))."""

    def bind(self, k: KernelContext) -> Callable[..., Any]:
        softplus, tanh = _like(k, "Softplus", 1), k.xp.tanh
        return lambda x: x * tanh(softplus(x))

    samples = [sample(normal(3, 4), tensorflow=False, why=_WHY)]


@op("_MklLayerNorm(x: T, scale: T, offset: T) -> y: T", T=(float32, bfloat16, half), epsilon="float = 0.001")
class LayerNorm(_Composed):
    """x with mean 0 and variance 1 along the last axis, scaled and shifted."""

    def compute(self, k: KernelContext, x: Any, scale: Any, offset: Any) -> Any:
        wide = x.astype("float32", copy=False)
        centred = wide - wide.mean(-1, keepdims=True)
        variance = (centred * centred).mean(-1, keepdims=True)
        made = centred / k.xp.sqrt(variance + k.xp.float32(k.attrs["epsilon"])) * scale + offset
        return made.astype(k.dtype, copy=False)

    samples = [sample(normal(3, 8), normal(8), normal(8), tensorflow=False, why=_WHY)]


@op("_UnaryOpsComposition(x: T) -> y: T", T=(float32, half, float64), op_names="list(string)")
class UnaryOpsComposition(_Composed):
    """Elementwise ops of one input, one after the other."""

    def bind(self, k: KernelContext) -> Callable[..., Any]:
        kernels = [_like(k, name.decode(), 1) for name in k.attrs["op_names"]]

        def run(x: Any) -> Any:
            for kernel in kernels:
                x = kernel(x)
            return x

        return run

    samples = [sample(positive(3, 4), op_names=["Sqrt", "Neg", "Exp"], tensorflow=False, why=_WHY)]
