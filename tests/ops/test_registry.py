"""Every op class on its samples: signature, shapes, values, gradients, and the simulated GPU, one test an
op."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
import pytest

import graphrt
from graphrt.core import raw
from graphrt.core.dtypes import DType, as_dtype, of_array
from graphrt.core.registry import OPS
from graphrt.core.samples import Program, Sample
from graphrt.core.shapes import TensorShape
from graphrt.core.signature import REQUIRED

# Nodes that only the compiler makes: TensorFlow has no Python builder for them.
_INTERNAL = frozenset(("_Arg", "_Retval", "_Send", "_Recv", "_HostSend", "_HostRecv", "_DeferredArg"))
_RTOL = {
    "float32": 2e-5,
    "float64": 1e-9,
    "float16": 4e-3,
    "bfloat16": 3e-2,
    "complex64": 2e-5,
    "complex128": 1e-9,
}
_NAMES = sorted(OPS)


def _samples(name: str) -> list[tuple[int, Sample]]:
    return [(i, s) for i, s in enumerate(OPS[name].samples) if isinstance(s, Sample)]


def _programs(name: str) -> list[tuple[int, Program]]:
    return [(i, s) for i, s in enumerate(OPS[name].samples) if isinstance(s, Program)]


@pytest.mark.parametrize("name", _NAMES)
def test_every_op_has_samples(name: str) -> None:
    assert OPS[name].samples, f"{name} has no samples"


@pytest.mark.parametrize("name", [n for n in _NAMES if n != "_DeferredArg"])
def test_signature_is_tensorflows(name: str, tf: Any) -> None:
    from tensorflow.python.framework import op_def_registry

    theirs = op_def_registry.get(name)
    assert theirs is not None, f"TensorFlow has no op {name}"
    ours = OPS[name]
    assert [_arg_text(a) for a in ours.inputs] == [_their_arg_text(a) for a in theirs.input_arg]
    assert [_arg_text(a) for a in ours.outputs] == [_their_arg_text(a) for a in theirs.output_arg]
    assert sorted(ours.attrs) == sorted(a.name for a in theirs.attr)
    for attr in theirs.attr:
        mine = ours.attrs[attr.name]
        kind = f"list({mine.kind})" if mine.is_list else mine.kind
        assert kind == attr.type, f"{name}.{attr.name}"
        has_default = attr.HasField("default_value")
        assert (mine.default is not REQUIRED) == has_default, f"{name}.{attr.name}: default"
        if has_default:
            from graphrt.core.attr_values import attr_from_proto

            assert _plain(mine.default) == _plain(attr_from_proto(attr.default_value, mine)), (
                f"{name}.{attr.name}"
            )
        if attr.HasField("allowed_values") and mine.kind == "type":
            theirs_allowed = {as_dtype(d) for d in attr.allowed_values.list.type if _known(d)}
            assert mine.allowed is not None, f"{name}.{attr.name}: TensorFlow allows only {theirs_allowed}"
            assert set(mine.allowed) <= theirs_allowed, (
                f"{name}.{attr.name}: {set(mine.allowed) - theirs_allowed}"
            )


def _known(number: int) -> bool:
    try:
        as_dtype(number)
    except TypeError:
        return False
    return True


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(v) for v in value]
    if isinstance(value, np.ndarray):
        return value.dtype, value.shape, value.tolist()
    return pytest.approx(value, nan_ok=True) if isinstance(value, float) else value


def _arg_text(arg: Any) -> str:
    kind = (
        arg.list_attr
        and f"list({arg.list_attr})"
        or (arg.dtype.name if arg.dtype is not None else arg.type_attr)
    )
    return (
        f"{arg.name}: {'ref ' if arg.is_ref else ''}{arg.number_attr + '*' if arg.number_attr else ''}{kind}"
    )


def _their_arg_text(arg: Any) -> str:
    kind = arg.type_list_attr and f"list({arg.type_list_attr})" or arg.type_attr or as_dtype(arg.type).name
    return (
        f"{arg.name}: {'ref ' if arg.is_ref else ''}{arg.number_attr + '*' if arg.number_attr else ''}{kind}"
    )


def _build(
    module: Any, name: str, sample: Sample, arrays: list[Any], feedable: bool
) -> tuple[list[Any], list[Any], dict[Any, Any]]:
    """(outputs, flat inputs, feeds) of a sample in the default graph of graphrt or TensorFlow."""
    flat: list[Any] = []
    feeds: dict[Any, Any] = {}

    def make(array: np.ndarray) -> Any:
        kind = as_dtype(of_array(array)).name
        if feedable:
            tensor = module.placeholder(getattr(module, kind), array.shape)
            feeds[tensor] = array
        else:
            tensor = module.constant(array, getattr(module, kind))
        flat.append(tensor)
        return tensor

    inputs = [[make(a) for a in v] if isinstance(v, list) else make(v) for v in arrays]
    if module is graphrt:
        made = OPS[name](*inputs, **sample.attrs)
    else:
        from tensorflow.python.framework import op_def_library

        defaults = {
            a.name: _theirs(a.default)
            for a in OPS[name].attrs.values()
            if a.default is not REQUIRED and a.name not in OPS[name].inferred_attrs()
        }
        made = op_def_library.apply_op(
            name, **{a.name: v for a, v in zip(OPS[name].inputs, inputs)}, **{**defaults, **sample.attrs}
        )
    return _flatten(made), flat, feeds


def _theirs(value: Any) -> Any:
    """An attr's default as TensorFlow's builders take it."""
    if isinstance(value, DType):
        return value.number
    return (
        value.as_list()
        if isinstance(value, TensorShape) and value.sizes is not None
        else (None if isinstance(value, TensorShape) else value)
    )


def _flatten(made: Any) -> list[Any]:
    if made is None:
        return []
    if isinstance(made, (list, tuple)):
        return [t for m in made for t in _flatten(m)]
    return [made]


def _tensors(outputs: list[Any]) -> list[Any]:
    return [t for t in outputs if hasattr(t, "dtype")]


@contextlib.contextmanager
def _session(module: Any, graph: Any, **options: Any):
    config = module.ConfigProto(**options)
    if module is graphrt:
        config.graph_options.optimizer_options.opt_level = -1
    else:
        config.graph_options.rewrite_options.disable_meta_optimizer = True
    session = module.Session(graph=graph, config=config)
    try:
        yield session
    finally:
        session.close()


def _run(
    module: Any, name: str, sample: Sample, feedable: bool = False, device: str = ""
) -> tuple[list[Any], list[Any]]:
    """(values, static shapes) of a sample's outputs."""
    graph = module.Graph()
    with graph.as_default(), graph.device(device or None):
        outputs, _, feeds = _build(module, name, sample, sample.arrays(), feedable)
        shapes = [t.shape for t in _tensors(outputs)]
        with _session(module, graph, allow_soft_placement=bool(device)) as session:
            values = session.run(outputs, feeds)
    return [v for v, t in zip(values, outputs) if hasattr(t, "dtype")], shapes


def _check_close(ours: Any, theirs: Any, sample: Any, what: str) -> None:
    ours, theirs = np.asarray(ours), np.asarray(theirs)
    assert ours.shape == theirs.shape, f"{what}: shape {ours.shape}, not {theirs.shape}"
    if theirs.dtype == object or ours.dtype == object:
        assert ours.tolist() == theirs.tolist(), what
        return
    assert of_array(ours).name == of_array(theirs).name, f"{what}: dtype {ours.dtype}, not {theirs.dtype}"
    kind = of_array(theirs).name
    rtol = sample.rtol if sample.rtol is not None else _RTOL.get(kind, 0)
    atol = getattr(sample, "atol", None)
    atol = atol if atol is not None else rtol
    wide = np.complex128 if as_dtype(kind).is_complex else np.float64
    if as_dtype(kind).is_floating or as_dtype(kind).is_complex:
        np.testing.assert_allclose(ours.astype(wide), theirs.astype(wide), rtol, atol, err_msg=what)
    else:
        np.testing.assert_array_equal(ours, theirs, err_msg=what)


@pytest.mark.parametrize("name", [n for n in _NAMES if _samples(n)])
def test_static_shapes_hold_and_feeds_give_what_constants_do(name: str) -> None:
    for i, sample in _samples(name):
        values, shapes = _run(graphrt, name, sample)
        fed, fed_shapes = _run(graphrt, name, sample, feedable=True)
        for value, shape, again, fed_shape in zip(values, shapes, fed, fed_shapes):
            assert shape.is_compatible_with(np.shape(value)), (
                f"sample {i}: static {shape}, value {np.shape(value)}"
            )
            assert fed_shape.is_compatible_with(np.shape(value)), (
                f"sample {i} fed: static {fed_shape}, value {np.shape(value)}"
            )
            np.testing.assert_array_equal(np.asarray(value), np.asarray(again), err_msg=f"sample {i}")


@pytest.mark.parametrize("name", [n for n in _NAMES if _samples(n)])
def test_values_are_tensorflows(name: str, tf: Any) -> None:
    for i, sample in _samples(name):
        if not sample.tensorflow:
            continue
        ours, _ = _run(graphrt, name, sample)
        theirs, _ = _run(tf.compat.v1, name, sample)
        assert len(ours) == len(theirs)
        for j, (mine, wanted) in enumerate(zip(ours, theirs)):
            _check_close(mine, wanted, sample, f"{name} sample {i} output {j}")


@pytest.mark.parametrize("name", [n for n in _NAMES if _programs(n)])
def test_programs_do_what_they_do_in_tensorflow(name: str, tf: Any) -> None:
    for i, program in _programs(name):
        if not program.tensorflow:
            continue
        ours, theirs = _run_program(graphrt, program), _run_program(tf.compat.v1, program)
        assert len(ours) == len(theirs)
        for j, (mine, wanted) in enumerate(zip(ours, theirs)):
            _check_close(mine, wanted, program, f"{name} program {i} value {j}")


def _run_program(module: Any, program: Program) -> list[Any]:
    graph = module.Graph()
    with graph.as_default():
        steps = program.build(module)
        with _session(module, graph) as session:
            return [v for step in steps for v in _flatten(session.run(step)) if v is not None]


def _differentiable(name: str) -> list[tuple[int, Sample]]:
    if not OPS[name].has_gradient:
        return []
    return [(i, s) for i, s in _samples(name) if s.gradient]


def _gradients(module: Any, name: str, sample: Sample, wide: bool) -> tuple[list[Any], list[np.ndarray], Any]:
    """Gradients of a sample, by float inputs; the inputs; and a function of inputs that gives the weighted
    sum of outputs."""
    arrays = sample.arrays()
    if wide:
        arrays = [[_widen(a) for a in v] if isinstance(v, list) else _widen(v) for v in arrays]
    graph = module.Graph()
    with graph.as_default():
        outputs, flat, feeds = _build(module, name, sample, arrays, feedable=True)
        real = [t for t in flat if t.dtype.is_floating]
        ys = [t for t in _tensors(outputs) if t.dtype.is_floating]
        if not real or not ys:
            return [], [], None
        rng = np.random.default_rng(7)
        weights = []
        with _session(module, graph) as session:
            for value in session.run(ys, feeds):
                weights.append(rng.standard_normal(np.shape(value)).astype(np.asarray(value).dtype))
            found = module.gradients(ys, real, [module.constant(w) for w in weights])
            found = [module.convert_to_tensor(g) if g is not None else None for g in found]
            made = session.run([g for g in found if g is not None], feeds)
            values = iter(made)
            grads = [next(values) if g is not None else None for g in found]
            inputs = [feeds[t] for t in real]

            def weighted(changed: list[np.ndarray]) -> float:
                given = dict(feeds)
                given.update(zip(real, changed))
                return float(
                    sum(
                        (np.asarray(v, np.float64) * w).sum() for v, w in zip(session.run(ys, given), weights)
                    )
                )

            numeric = _numeric(weighted, inputs, grads) if wide and module is graphrt else None
    return grads, inputs, numeric


def _widen(array: np.ndarray) -> np.ndarray:
    return array.astype(np.float64) if array.dtype == np.float32 else array


def _numeric(weighted: Any, inputs: list[np.ndarray], grads: list[Any]) -> list[tuple[float, float]]:
    """(numeric, analytic) derivative along one random direction for each input with a gradient."""
    rng = np.random.default_rng(11)
    pairs = []
    for i, (x, grad) in enumerate(zip(inputs, grads)):
        if grad is None or x.dtype != np.float64 or not x.size:
            continue
        direction = rng.standard_normal(x.shape)
        step = 1e-6
        up, down = list(inputs), list(inputs)
        up[i], down[i] = x + step * direction, x - step * direction
        pairs.append(
            ((weighted(up) - weighted(down)) / (2 * step), float((np.asarray(grad) * direction).sum()))
        )
    return pairs


@pytest.mark.parametrize("name", [n for n in _NAMES if _differentiable(n)])
def test_gradients_are_tensorflows(name: str, tf: Any) -> None:
    for i, sample in _differentiable(name):
        if not sample.tensorflow:
            continue
        ours, _, _ = _gradients(graphrt, name, sample, False)
        try:
            theirs, _, _ = _gradients(tf.compat.v1, name, sample, False)
        except (LookupError, NotImplementedError):
            continue  # TensorFlow has no gradient here; ours is held against the numeric one
        for j, (mine, wanted) in enumerate(zip(ours, theirs)):
            assert (mine is None) == (wanted is None), (
                f"{name} sample {i}: gradient {j} is {mine}, not {wanted}"
            )
            if mine is not None:
                _check_close(mine, wanted, sample, f"{name} sample {i}: gradient of input {j}")


@pytest.mark.parametrize("name", [n for n in _NAMES if _differentiable(n)])
def test_gradients_are_numeric_ones(name: str) -> None:
    for i, sample in _differentiable(name):
        if not sample.numeric:
            continue
        try:
            _, _, numeric = _gradients(graphrt, name, sample, True)
        except TypeError as error:
            if "it takes" in str(error):
                continue  # the op has no float64 form
            raise
        for measured, analytic in numeric or ():
            if not np.isfinite(measured):
                continue  # beside a pole
            assert analytic == pytest.approx(measured, rel=2e-4, abs=2e-4), f"{name} sample {i}"


@pytest.mark.parametrize(
    "name", [n for n in _NAMES if _samples(n) and not OPS[n].cpu_only and n not in _INTERNAL]
)
def test_a_simulated_gpu_gives_what_the_cpu_does(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAPHRT_SIM_GPUS", "1")
    for i, sample in _samples(name):
        on_cpu, _ = _run(graphrt, name, sample, feedable=True, device="/cpu:0")
        on_gpu, _ = _run(graphrt, name, sample, feedable=True, device="/gpu:0")
        for mine, wanted in zip(on_gpu, on_cpu):
            np.testing.assert_array_equal(np.asarray(mine), np.asarray(wanted), err_msg=f"sample {i}")


def test_raw_ops_are_the_registry() -> None:
    assert raw.AddV2 is OPS["AddV2"]
    with pytest.raises(AttributeError, match="no op 'Nonsense'"):
        _ = raw.Nonsense
