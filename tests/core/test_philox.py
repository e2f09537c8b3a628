"""Philox streams and what TensorFlow's kernels make of them.

Without TensorFlow: the algorithm's published vectors, values recorded from TensorFlow 2.21, and what must
hold between the paths (one block, arrays, compiled) and across the counter's carries. With it: every
distribution, over seeds, sizes and dtypes, for several runs of the same kernel.
"""

import importlib.util
import subprocess
import sys
import threading
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import graphrt
from graphrt.core import distributions, rejection
from graphrt.core.errors import InvalidArgumentError
from graphrt.core.philox import (  # fmt: skip
    CHUNK,
    GuardedPhilox,
    Stream,
    block,
    compiled,
    fill_words,
    words_at,
)
from graphrt.core.seeds import op_seeds

FLOATS = ("float16", "bfloat16", "float32", "float64")
NORMAL_TOLERANCE = {"float16": 2e-3, "bfloat16": 1.6e-2, "float32": 1e-6, "float64": 1e-12}
SEEDS = ((1, 2), (0, 7), (-5, 3), (2**31 + 5, -1), (2**40 + 3, 2**50 + 9), (87654321, 42))
SIZES = (0, 1, 3, 4, 5, 1001, 100000)
RUNS = 3
needs_numba = pytest.mark.skipif(importlib.util.find_spec("numba") is None, reason="numba is not installed")


def numpy_dtype(name):
    return np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name)


@pytest.fixture
def uncompiled(monkeypatch):
    """The NumPy path, also where an earlier test loaded the compiled one."""
    monkeypatch.setattr(compiled, "fill", None)
    monkeypatch.setattr(compiled, "swap", None)
    monkeypatch.setattr(compiled, "drawn", 0)


@pytest.fixture(params=["numpy", pytest.param("numba", marks=needs_numba)])
def path(request, monkeypatch):
    """Both ways to compute blocks, one after the other."""
    if request.param == "numba":
        assert compiled.load()
    else:
        request.getfixturevalue("uncompiled")
    return request.param


# ---------------------------------------------------------------------------------------------- blocks


@pytest.mark.parametrize(("key", "counter", "words"), [
    (0, 0, "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    (2**64 - 1, 2**128 - 1, "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    (0x299F31D0_A4093822, 0x03707344_13198A2E_85A308D3_243F6A88, "d16cfe09 94fdcceb 5001e420 24126ea1"),
])  # fmt: skip
def test_a_block_has_the_words_that_the_authors_of_philox_published(key, counter, words):
    assert " ".join(f"{w:08x}" for w in block(key, counter)) == words


@pytest.mark.parametrize("counter", [0, 2**32 - 3, 2**64 - 3, 2**96 - 3, 2**128 - 3, 2**77 + 2**32 - 700])
@pytest.mark.parametrize("stride", [1, 128, 256])
def test_words_of_many_blocks_are_those_of_each_block_also_across_carries(path, counter, stride):
    stream, blocks = Stream(0x0123456789ABCDEF, counter), 1000
    words = np.empty(4 * blocks, np.uint32)
    fill_words(stream, words, stride)
    expected = [block(stream.key, (counter + i * stride) % 2**128) for i in range(blocks)]
    np.testing.assert_array_equal(words.reshape(-1, 4), np.array(expected, np.uint32))


@pytest.mark.parametrize("counter", [5, 2**64 - 300, 2**128 - 300])
def test_words_at_scattered_places_are_those_of_each_block(counter):
    stream, places = Stream(99, counter), np.array([7, 0, 299, 300, 2**33, 2**63 + 1, 4], np.uint64)
    expected = [block(99, (counter + int(p)) % 2**128) for p in places]
    np.testing.assert_array_equal(words_at(stream, places), np.array(expected, np.uint32))


def test_words_over_several_chunks_are_those_of_one_draw_after_another(path):
    stream = Stream.of_seeds(3, 4)
    whole = np.empty(4 * (2 * CHUNK + 77), np.uint32)
    fill_words(stream, whole)
    parts = np.empty_like(whole)
    at = 0
    for blocks in (1, 4, 5, 100, CHUNK - 110, CHUNK + 1, 76):
        fill_words(stream.skip(at), parts[4 * at : 4 * (at + blocks)])
        at += blocks
    assert at == 2 * CHUNK + 77
    np.testing.assert_array_equal(parts, whole)


def test_masked_words_keep_and_set_the_asked_bits(path):
    for blocks in (2, 300):
        plain, masked = np.empty(4 * blocks, np.uint32), np.empty(4 * blocks, np.uint32)
        fill_words(Stream(1, 2), plain)
        fill_words(Stream(1, 2), masked, keep=0x7FFFFF, ones=0x3F800000)
        np.testing.assert_array_equal(masked, plain & 0x7FFFFF | 0x3F800000)


@needs_numba
def test_many_draws_load_the_compiled_blocks_and_the_stream_goes_on_unchanged(uncompiled, monkeypatch):
    loaded = threading.Event()
    original = compiled.load
    monkeypatch.setattr(compiled, "load", lambda: original() and loaded.set())
    monkeypatch.setattr(compiled, "_begun", False)
    monkeypatch.setattr("graphrt.core.philox._COMPILE_AFTER", 5000)
    state, again = GuardedPhilox(8, 9), GuardedPhilox(8, 9)
    first = distributions.uniform(state, (4000,))
    assert not loaded.is_set()
    second = distributions.uniform(state, (30000,))
    assert loaded.wait(60)
    third = distributions.uniform(state, (30000,))
    for drawn in (first, second, third):
        np.testing.assert_array_equal(distributions.uniform(again, drawn.shape), drawn)


def test_numba_is_not_imported_for_small_draws():
    program = (
        "import sys; from graphrt.core import distributions, philox; "
        "distributions.uniform(philox.GuardedPhilox(1, 2), (100000,)); print('numba' in sys.modules)"
    )
    root = Path(graphrt.__file__).parents[1]
    call = [sys.executable, "-c", program]
    done = subprocess.run(call, capture_output=True, text=True, timeout=120, cwd=root)
    assert done.stdout.strip() == "False", done.stderr


# ---------------------------------------------------------------------------------------------- state


def test_state_starts_from_both_seeds_and_goes_on_by_256_blocks_an_output():
    state = GuardedPhilox(-1, 2**40)
    assert state.reserve(0) == Stream(2**64 - 1, 2**104)
    distributions.uniform(state, (10, 3))
    assert state.reserve(0) == Stream(2**64 - 1, 2**104 + 30 * 256)


def test_seeds_zero_and_zero_draw_something_new_each_time():
    draws = {distributions.uniform(GuardedPhilox(0, 0), (4,), np.float64).tobytes() for _ in range(5)}
    assert len(draws) == 5


def test_threads_that_share_a_state_never_get_the_same_blocks():
    state, got = GuardedPhilox(1, 1), []

    def reserve():
        mine = [state.reserve(3).counter for _ in range(500)]
        got.extend(mine)

    threads = [threading.Thread(target=reserve) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert sorted(got) == [(1 << 64) + 3 * i for i in range(4000)]


def test_threads_draw_at_once_without_sharing_scratch(path):
    expected = distributions.normal(Stream.of_seeds(1, 2), (50000,))
    wrong = []

    def draw():
        for _ in range(10):
            if not np.array_equal(distributions.normal(Stream.of_seeds(1, 2), (50000,)), expected):
                wrong.append(1)

    threads = [threading.Thread(target=draw) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not wrong


# ---------------------------------------------------------------------------------------------- values


DRAWS = [distributions.uniform, distributions.normal, distributions.truncated_normal]
RECORDED = {
    ("uniform", "float16"): [0.0078125, 0.32421875, 0.2470703125, 0.3642578125, 0.0283203125],
    ("uniform", "bfloat16"): [0.0625, 0.59375, 0.9765625, 0.9140625, 0.2265625],
    ("uniform", "float32"): [0.9522714614868164, 0.6774077415466309, 0.7953182458877563, 0.7557817697525024],
    ("uniform", "float64"): [0.6181726095777149, 0.36254602252651336, 0.8076457653772362, 0.4881631901754211],
    ("normal", "float32"): [-0.2807750701904297, -0.13775210082530975, -0.6763296127319336],
    ("normal", "float64"): [0.7456244549943906, -0.6371964266311646, 0.04856931364585292],
    ("truncated_normal", "float32"): [-0.2807750701904297, -0.13775210082530975, -0.6763296127319336,
                                      0.024580413475632668, -0.4684547185897827, -0.002466318430379033],
    ("truncated_normal", "float64"): [0.7456244549943906, -0.6371964266311646, 1.0386338435537557,
                                      0.8440623680320994, -0.10011952002828886, 1.884183291284533],
}  # fmt: skip


@pytest.mark.parametrize(("kind", "dtype"), RECORDED)
def test_floats_are_those_recorded_from_tensorflow(path, kind, dtype):
    expected = RECORDED[kind, dtype]
    drawn = getattr(distributions, kind)(GuardedPhilox(87654321, 42), (len(expected),), numpy_dtype(dtype))
    tolerance = 0 if kind == "uniform" else NORMAL_TOLERANCE[dtype]
    np.testing.assert_allclose(drawn.astype(np.float64), expected, rtol=0, atol=tolerance)


def test_other_values_are_those_recorded_from_tensorflow():
    stream = Stream.of_seeds(87654321, 42)
    assert distributions.uniform_int(stream, (5,), -50, 50, np.int32).tolist() == [22, -6, 43, 39, -9]
    wide = distributions.uniform_int(stream, (3,), -50, 2**40, np.int64)
    assert wide.tolist() == [328596255868, 503391840225, 102415410545]
    logits = np.log(np.array([[0.1, 0.2, 0.7], [0.5, 0.25, 0.25]], np.float32))
    assert distributions.multinomial(stream, logits, 6).tolist() == [[2, 2, 2, 2, 2, 2], [1, 0, 0, 0, 1, 2]]
    assert distributions.shuffle(stream, np.arange(6)).tolist() == [2, 5, 3, 4, 1, 0]
    gammas = [[0.3945610737885729, 2.4111420686888447], [0.0018992437378565418, 5.027908852983714],
              [0.0024427492400085813, 1.5627775803173256]]  # fmt: skip
    np.testing.assert_allclose(rejection.gamma(stream, 3, np.array([0.5, 3.0])), gammas, rtol=1e-12)
    counts = rejection.poisson(stream, 3, np.array([0.5, 30.0]), np.int64)
    assert counts.tolist() == [[0, 26], [1, 26], [0, 28]]


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("draw", DRAWS)
def test_out_is_filled_whatever_its_memory_looks_like(draw, dtype):
    stream, dtype = Stream.of_seeds(5, 6), numpy_dtype(dtype)
    expected = draw(stream, (37, 41), dtype)
    contiguous, strided = np.zeros((37, 41), dtype), np.zeros((41, 74), dtype)[:, ::2].T
    for out in (contiguous, strided):
        assert draw(stream, (37, 41), dtype, out) is out
        np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("shape", [(), (0,), (2, 0, 3), (7,)])
@pytest.mark.parametrize("draw", DRAWS)
def test_a_draw_has_the_shape_asked_for(draw, shape):
    assert draw(Stream(1, 2), shape, np.float64).shape == shape


def test_a_long_draw_begins_with_a_short_one():
    for draw in DRAWS:
        for dtype in map(numpy_dtype, FLOATS):
            long = draw(Stream(1, 2), (4 * CHUNK + 9,), dtype)
            np.testing.assert_array_equal(draw(Stream(1, 2), (4 * CHUNK + 1,), dtype), long[:-8])


@pytest.mark.parametrize("dtype", FLOATS)
def test_truncated_normals_stay_inside_two_deviations(dtype):
    drawn = distributions.truncated_normal(Stream(1, 2), (200000,), numpy_dtype(dtype)).astype(np.float64)
    assert np.abs(drawn).max() <= 2
    assert drawn.std() == pytest.approx(0.8796, abs=0.01)
    assert drawn.mean() == pytest.approx(0, abs=0.01)


def test_uniform_ints_take_every_value_of_the_range_and_no_other():
    for dtype in ("int32", "int64", "uint32", "uint64"):
        drawn = distributions.uniform_int(Stream(1, 2), (1000,), 3, 11, dtype)
        assert set(drawn.tolist()) == set(range(3, 11))


def test_a_shuffle_is_a_permutation_of_rows_and_the_compiled_one_is_the_same(path):
    rows = np.arange(6000).reshape(2000, 3)
    shuffled = distributions.shuffle(Stream(7, 7), rows)
    assert sorted(map(tuple, shuffled)) == list(map(tuple, rows))
    offsets = np.empty(2000, np.uint32)
    fill_words(Stream(7, 7), offsets)
    order = list(range(2000))
    for i in range(1999):
        j = i + int(offsets[i]) % (2000 - i)
        order[i], order[j] = order[j], order[i]
    np.testing.assert_array_equal(shuffled, rows[order])


def test_what_needs_no_shuffling_reserves_nothing():
    state = GuardedPhilox(1, 2)
    for array in (np.zeros(0), np.zeros(1), np.array(3), np.zeros((1, 5)), np.zeros((4, 0))):
        assert distributions.shuffle(state, array).shape == array.shape
    assert state.reserve(0).counter == 2 << 64


def test_wrong_arguments_say_what_would_work():
    with pytest.raises(InvalidArgumentError, match="Need minval < maxval, got 5 >= 5"):
        distributions.uniform_int(Stream(1, 2), (3,), 5, 5, np.int32)
    with pytest.raises(TypeError, match="uniform draws .*float32.* not int32"):
        distributions.uniform(Stream(1, 2), (3,), np.int32)
    with pytest.raises(TypeError, match="uniform_int draws int32"):
        distributions.uniform_int(Stream(1, 2), (3,), 0, 5, np.int16)
    with pytest.raises(ValueError, match=r"out is float32 \[4\], the draw is float32 \[3\]"):
        distributions.uniform(Stream(1, 2), (3,), np.float32, np.zeros(4, np.float32))
    with pytest.raises(InvalidArgumentError, match=r"logits should be a matrix, got shape \[3\]"):
        distributions.multinomial(Stream(1, 2), np.zeros(3), 1)
    with pytest.raises(InvalidArgumentError, match="num_classes should be positive"):
        distributions.multinomial(Stream(1, 2), np.zeros((2, 0)), 1)
    with pytest.raises(InvalidArgumentError, match="num_samples should be non-negative, got -1"):
        distributions.multinomial(Stream(1, 2), np.zeros((2, 3)), -1)
    with pytest.raises(InvalidArgumentError, match=r"rate nan at \[1, 0\]"):
        rejection.poisson(Stream(1, 2), 3, np.array([[1.0], [np.nan]]), np.float32)


@pytest.mark.parametrize("alpha", [0.3, 1.0, 4.5])
def test_gamma_has_its_mean_and_variance(alpha):
    drawn = rejection.gamma(Stream(3, 4), 40000, np.array([alpha]))
    assert drawn.mean() == pytest.approx(alpha, rel=0.03)
    assert drawn.var() == pytest.approx(alpha, rel=0.06)


@pytest.mark.parametrize("rate", [0.0, 0.5, 9.5, 10.0, 250.0])
def test_poisson_has_its_mean_and_variance(rate):
    drawn = rejection.poisson(Stream(3, 4), 40000, np.array([rate]), np.int64)
    assert drawn.mean() == pytest.approx(rate, rel=0.03)
    assert drawn.var() == pytest.approx(rate, rel=0.06)


# ---------------------------------------------------------------------------------------------- seeds


@pytest.mark.parametrize(("graph_seed", "op_seed", "last_id", "expected"), [
    (None, None, 5, (None, None)),
    (None, 7, 5, (87654321, 7)),
    (None, -1, 5, (87654321, 2**31 - 2)),
    (None, 0, 5, (87654321, 0)),
    (1, None, 5, (1, 5)),
    (1, 0, 5, (1, 0)),
    (0, 0, 5, (0, 2**31 - 1)),
    (0, None, 0, (0, 2**31 - 1)),
    (2**31 - 1, 2**31 - 1, 5, (0, 2**31 - 1)),
    (-3, 2**40, 5, (2**31 - 4, 2**40 % (2**31 - 1))),
    (np.int64(4), np.int32(9), 5, (4, 9)),
])  # fmt: skip
def test_op_seeds_follow_the_rule_of_get_seed(graph_seed, op_seed, last_id, expected):
    assert op_seeds(graph_seed, op_seed, last_id) == expected


def test_op_seeds_are_those_of_tensorflow(tf):
    values = (None, 0, 1, -1, 87654321, 2**31 - 2, 2**31 - 1, 2**31, 2**63, -(2**40))
    for graph_seed in values:
        for op_seed in values:
            with tf.Graph().as_default():
                tf.compat.v1.set_random_seed(graph_seed)
                taken = [tf.compat.v1.get_seed(op_seed) for _ in range(2)]
            assert taken == [op_seeds(graph_seed, op_seed, used) for used in range(2)], (graph_seed, op_seed)


# ---------------------------------------------------------------------------------------------- TensorFlow


def run_in_tensorflow(tf, build):
    """RUNS values, by name, of each kernel that `build` makes in a fresh graph, run on one thread."""
    with tf.Graph().as_default():
        built = build()
        config = tf.compat.v1.ConfigProto(intra_op_parallelism_threads=1, inter_op_parallelism_threads=1)
        with tf.compat.v1.Session(config=config) as session:
            return {name: [session.run(tensor) for _ in range(RUNS)] for name, tensor in built.items()}


def assert_runs_agree(name, expected, draw, seeds, tolerance=0.0):
    state = GuardedPhilox(*seeds)
    for run, wanted in enumerate(expected):
        got = draw(state)
        assert (got.dtype, got.shape) == (wanted.dtype, wanted.shape), name
        np.testing.assert_allclose(got.astype(np.float64), wanted.astype(np.float64), rtol=0, atol=tolerance,
                                   err_msg=f"{name}, run {run}")  # fmt: skip


@pytest.mark.parametrize("seeds", SEEDS)
def test_floats_are_those_of_tensorflow_over_several_runs(tf, path, seeds):
    kernels = {"uniform": (tf.raw_ops.RandomUniform, distributions.uniform),
               "normal": (tf.raw_ops.RandomStandardNormal, distributions.normal),
               "truncated": (tf.raw_ops.TruncatedNormal, distributions.truncated_normal)}  # fmt: skip
    cases = [(kind, size, dtype) for kind in kernels for size in SIZES for dtype in FLOATS]
    expected = run_in_tensorflow(tf, lambda: {
        (kind, size, dtype): kernels[kind][0](shape=[size], dtype=dtype, seed=seeds[0], seed2=seeds[1])
        for kind, size, dtype in cases})  # fmt: skip
    for case in cases:
        kind, size, dtype = case
        tolerance = 0.0 if kind == "uniform" else NORMAL_TOLERANCE[dtype]
        draw = lambda state: kernels[kind][1](state, (size,), numpy_dtype(dtype))  # noqa: B023, E731
        assert_runs_agree(case, expected[case], draw, seeds, tolerance)


@pytest.mark.parametrize("seeds", SEEDS)
def test_ints_and_shuffles_are_those_of_tensorflow_over_several_runs(tf, path, seeds):
    ranges = [("int32", -5, 7), ("int32", -(2**31), 2**31 - 1), ("int32", 0, 1),
              ("int64", -5, 7), ("int64", -(2**63), 2**63 - 1), ("int64", 3, 2**40)]  # fmt: skip
    arrays = {size: np.arange(3 * size, dtype=np.int32).reshape(size, 3) for size in (0, 1, 2, 5, 1001)}

    def build():
        s = {"seed": seeds[0], "seed2": seeds[1]}
        ints = {(size, *r): tf.raw_ops.RandomUniformInt(
                    shape=[size], minval=tf.constant(r[1], r[0]), maxval=tf.constant(r[2], r[0]), **s)
                for size in SIZES for r in ranges}  # fmt: skip
        rows = {("rows", size): tf.raw_ops.RandomShuffle(value=array, **s) for size, array in arrays.items()}
        flat = {("flat", size): tf.raw_ops.RandomShuffle(value=tf.range(size), **s) for size in SIZES}
        return {**ints, **rows, **flat}

    expected = run_in_tensorflow(tf, build)
    for name, wanted in expected.items():
        if name[0] == "rows":
            draw = lambda state: distributions.shuffle(state, arrays[name[1]])  # noqa: B023, E731
        elif name[0] == "flat":
            draw = lambda state: distributions.shuffle(state, np.arange(name[1], dtype=np.int32))  # noqa: B023, E731
        else:
            size, dtype, low, high = name
            draw = lambda state: distributions.uniform_int(state, (size,), low, high, dtype)  # noqa: B023, E731
        assert_runs_agree(name, wanted, draw, seeds)


@pytest.mark.parametrize("dtype", FLOATS)
def test_multinomials_are_those_of_tensorflow_over_several_runs(tf, dtype):
    source = np.random.RandomState(0)
    logits = {}
    for batch, classes in ((1, 1), (3, 10), (20, 7), (2, 1000), (4, 3), (0, 3)):
        logits[batch] = (source.randn(batch, classes) * 3).astype(numpy_dtype(dtype))
    logits[3][0, 2], logits[3][1, 3], logits[3][2, :] = np.inf, np.nan, -np.inf
    cases = [(batch, samples, out, seeds) for batch in logits for samples in (0, 1, 5, 33)
             for out in ("int32", "int64") for seeds in SEEDS[:3]]  # fmt: skip
    expected = run_in_tensorflow(tf, lambda: {
        (batch, samples, out, seeds): tf.raw_ops.Multinomial(
            logits=tf.constant(logits[batch]), num_samples=samples, output_dtype=out,
            seed=seeds[0], seed2=seeds[1])
        for batch, samples, out, seeds in cases})  # fmt: skip
    for case in cases:
        batch, samples, out, seeds = case
        draw = lambda state: distributions.multinomial(state, logits[batch], samples, out)  # noqa: B023, E731
        assert_runs_agree(case, expected[case], draw, seeds)


def test_gammas_and_poissons_are_those_of_tensorflow_over_several_runs(tf):
    alphas = np.array([[0.1, 0.5, 1.0], [2.5, 30.0, 0.9]])
    rates = np.array([0.0, 0.1, 1.0, 5.0, 9.99, 10.0, 12.5, 100.0, 1e4])
    cases = [(kind, samples, dtype, seeds) for kind in ("gamma", "float32", "int64")
             for samples in (0, 1, 5, 1001) for dtype in ("float16", "float32", "float64")
             for seeds in SEEDS[:3]]  # fmt: skip

    def build():
        made = {}
        for case in cases:
            kind, samples, dtype, (seed, seed2) = case
            if kind == "gamma":
                made[case] = tf.raw_ops.RandomGamma(
                    shape=[samples], alpha=alphas.astype(dtype), seed=seed, seed2=seed2)
            else:
                made[case] = tf.raw_ops.RandomPoissonV2(
                    shape=[samples], rate=rates.astype(dtype), dtype=kind, seed=seed, seed2=seed2)
        return made

    expected = run_in_tensorflow(tf, build)
    for case in cases:
        kind, samples, dtype, seeds = case
        if kind == "gamma":
            draw = lambda state: rejection.gamma(state, samples, alphas.astype(dtype))  # noqa: B023, E731
        else:
            draw = lambda state: rejection.poisson(state, samples, rates.astype(dtype), kind)  # noqa: B023, E731
        state = GuardedPhilox(*seeds)
        for wanted in expected[case]:
            got = draw(state)
            assert (got.dtype, got.shape) == (wanted.dtype, wanted.shape)
            np.testing.assert_allclose(got, wanted, rtol=1e-3 if dtype == "float16" else 1e-6, atol=1e-9)


def test_stateless_streams_are_those_of_tensorflow(tf):
    seeds = [(1, 2), (0, 0), (-1, 5), (2**31 - 1, -(2**31))]
    wide = [*seeds, (2**40 + 1, -(2**50))]

    def build():
        made = {}
        for dtype, chosen in (("int32", seeds), ("int64", wide)):
            for seed in chosen:
                drawn = {"shape": [1001], "seed": tf.constant(seed, dtype)}
                made["uniform", dtype, seed] = tf.raw_ops.StatelessRandomUniform(dtype="float32", **drawn)
                made["normal", dtype, seed] = tf.raw_ops.StatelessRandomNormal(dtype="float64", **drawn)
                made["full", dtype, seed] = tf.raw_ops.StatelessRandomUniformFullInt(dtype="uint64", **drawn)
                made["multinomial", dtype, seed] = tf.raw_ops.StatelessMultinomial(
                    logits=np.zeros((3, 9), np.float32), num_samples=11, seed=drawn["seed"])
        return made

    for name, wanted in run_in_tensorflow(tf, build).items():
        kind, dtype, seed = name
        stream = Stream.of_stateless_seed(np.array(seed, dtype))
        got = {"uniform": lambda: distributions.uniform(stream, (1001,)),  # noqa: B023
               "normal": lambda: distributions.normal(stream, (1001,), np.float64),  # noqa: B023
               "full": lambda: distributions.full_int(stream, (1001,), np.uint64),  # noqa: B023
               "multinomial": lambda: distributions.multinomial(stream, np.zeros((3, 9)), 11)}[kind]()  # noqa: B023
        for each in wanted:
            tolerance = 1e-12 if kind == "normal" else 0
            np.testing.assert_allclose(got, each, rtol=0, atol=tolerance, err_msg=str(name))
