"""Random ops and the functions over them: seeds, streams across signatures and sessions, shapes, errors."""

import numpy as np
import pytest

import graphrt
from graphrt import random as random_namespace
from graphrt.api import random_api
from graphrt.core.errors import InvalidArgumentError

V1_NAMES = [
    "random_uniform",
    "random_normal",
    "truncated_normal",
    "random_shuffle",
    "random_crop",
    "random_gamma",
    "random_poisson",
    "multinomial",
    "set_random_seed",
    "get_seed",
]
IN_NAMESPACE = [
    "uniform",
    "normal",
    "truncated_normal",
    "shuffle",
    "gamma",
    "poisson",
    "multinomial",
    "categorical",
    "set_random_seed",
    "get_seed",
    "stateless_uniform",
    "stateless_normal",
    "stateless_truncated_normal",
    "stateless_gamma",
    "stateless_poisson",
    "stateless_multinomial",
    "stateless_categorical",
    "split",
    "fold_in",
    "all_candidate_sampler",
    "uniform_candidate_sampler",
    "log_uniform_candidate_sampler",
    "learned_unigram_candidate_sampler",
    "fixed_unigram_candidate_sampler",
]


def build_everything(tf, random):
    """A graph of every public function, with and without seeds; returns what can be fetched, by name."""
    tf.set_random_seed(5)
    logits = tf.constant([[0.0, 1.0, 2.0], [3.0, 0.0, -1.0]])
    value = tf.constant(np.arange(24, dtype=np.int32).reshape(6, 4))
    r = random
    return {
        "uniform": r.uniform([2, 3]),
        "uniform between": r.uniform([2, 3], -1, 1, seed=7),
        "uniform up to": r.uniform([4], 0, 3.5),
        "uniform ints": r.uniform([5], maxval=10, dtype=tf.int32),
        "uniform int64": r.uniform([5], -(2**40), 2**40, dtype=tf.int64, seed=1),
        "uniform double": r.uniform([3], dtype=tf.float64),
        "uniform of broadcast bounds": r.uniform([2, 2], [0.0, 10.0], [1.0, 20.0]),
        "named": r.uniform([], 0.0, 1.0, name="u"),
        "normal": r.normal([2, 3]),
        "normal half": r.normal([3], 1.0, 0.5, dtype=tf.float16, seed=3),
        "truncated": r.truncated_normal([50], stddev=0.1),
        "shuffle": r.shuffle(value),
        "multinomial": r.multinomial(logits, 5),
        "categorical": r.categorical(logits, 4, dtype=tf.int32, seed=-1),
        "poisson": r.poisson([0.5, 20.0], [3]),
        "poisson ints": r.poisson(3.0, [4], dtype=tf.int32, seed=9),
        "gamma": r.gamma([2], [0.5, 2.0]),
        "gamma of rates": r.gamma([], [[0.5], [2.0]], [1.0, 10.0], seed=4),
        "crop": tf.random_crop(value, [3, 2]),
        "stateless uniform": r.stateless_uniform([4], [1, 2], -1.0, 1.0),
        "stateless ints": r.stateless_uniform([4], [1, 2], 0, 100, dtype=tf.int32),
        "stateless all ints": r.stateless_uniform([4], [1, 2], None, None, dtype=tf.uint32),
        "stateless normal": r.stateless_normal([4], [1, 2], 2.0, 3.0),
        "stateless truncated": r.stateless_truncated_normal([50], [1, 2]),
        "stateless multinomial": r.stateless_multinomial(logits, 3, [1, 2]),
        "stateless categorical": r.stateless_categorical(logits, 3, [1, 2]),
        "stateless gamma": r.stateless_gamma([2, 3], [1, 2], [0.5, 1.0, 2.0], 2.0),
        "stateless poisson": r.stateless_poisson([2, 3], [1, 2], [0.5, 10.0, 20.0]),
        "split": r.split([1, 2], 3),
        "fold in": r.fold_in([1, 2], 7),
    }


def assert_same(name, ours, theirs):
    assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape), name
    if ours.dtype.kind in "iu":
        np.testing.assert_array_equal(ours, theirs, err_msg=name)
    else:
        tolerance = 2e-3 if ours.dtype == np.float16 else 1e-6
        np.testing.assert_allclose(ours, theirs, rtol=tolerance, atol=tolerance, err_msg=name)


def test_public_functions_build_tensorflows_nodes(tf):
    v1 = tf.compat.v1
    with tf.Graph().as_default() as theirs, graphrt.Graph().as_default() as ours:
        build_everything(v1, v1.random)
        build_everything(graphrt, random_namespace)
    wanted, made = theirs.as_graph_def().node, ours.as_graph_def().node
    assert [(n.name, n.op, list(n.input)) for n in made] == [(n.name, n.op, list(n.input)) for n in wanted]
    for mine, reference in zip(made, wanted, strict=True):
        for attr in ("seed", "seed2", "dtype", "Tout", "output_dtype"):
            assert mine.attr[attr].SerializeToString() == reference.attr[attr].SerializeToString(), (
                mine.name,
                attr,
            )


def test_streams_go_on_across_signatures_and_start_again_in_each_session_as_in_tensorflow(tf):
    v1 = tf.compat.v1

    def runs(api, random):
        with api.Graph().as_default() as graph:
            fetches = build_everything(api, random)
            some = {k: v for i, (k, v) in enumerate(fetches.items()) if i % 2}
            single = fetches["uniform"]
            seen = []
            for _ in range(2):
                with api.Session(graph=graph) as session:
                    steps = [fetches, some, single, fetches, [single, single], some]
                    seen.append([session.run(step) for step in steps])
        return seen

    ours, theirs = runs(graphrt, random_namespace), runs(v1, v1.random)
    for mine, reference in zip(ours, theirs, strict=True):
        for step, wanted in zip(mine, reference, strict=True):
            if isinstance(wanted, dict):
                for name in wanted:
                    assert_same(name, step[name], wanted[name])
            else:
                for a, b in zip(np.atleast_2d(step), np.atleast_2d(wanted), strict=True):
                    assert_same("uniform", a, b)


def test_a_node_goes_on_where_its_last_run_ended_whatever_else_the_step_fetches():
    x = random_api.random_uniform([3], seed=1)
    y = random_api.random_uniform([3], seed=1)
    with graphrt.Session() as session:
        alone = [session.run(x) for _ in range(3)]
        other = [session.run([y, y + 1.0])[0] for _ in range(3)]
    np.testing.assert_array_equal(alone, other)
    assert len({a.tobytes() for a in alone}) == 3


def test_sessions_start_again_with_a_seed_and_anew_without():
    seeded, unseeded = random_api.random_normal([4], seed=8), random_api.random_normal([4])
    drawn = []
    for _ in range(2):
        with graphrt.Session() as session:
            drawn.append(session.run([seeded, unseeded]))
    np.testing.assert_array_equal(drawn[0][0], drawn[1][0])
    assert not np.array_equal(drawn[0][1], drawn[1][1])


def test_an_op_drawn_twice_in_a_step_is_drawn_once():
    x = random_api.random_uniform([3])
    with graphrt.Session() as session:
        once, again, plus = session.run([x, graphrt.identity(x), x + 0.0])
    np.testing.assert_array_equal(once, again)
    np.testing.assert_array_equal(once, plus)


def test_fetched_values_are_the_callers_for_ever():
    x = random_api.random_uniform([1000], seed=3)
    with graphrt.Session() as session:
        held = [session.run(x) for _ in range(10)]
        copies = [h.copy() for h in held]
        for _ in range(10):
            session.run(x)
    for kept, copy in zip(held, copies, strict=True):
        np.testing.assert_array_equal(kept, copy)


def test_the_shape_may_change_from_run_to_run():
    shape = graphrt.placeholder(graphrt.int32, [2])
    x = random_api.random_uniform(shape, seed=3)
    assert x.shape.as_list() == [None, None]
    with graphrt.Session() as session:
        for sizes in ([2, 3], [4, 1], [2, 3], [0, 5], [2, 3]):
            assert session.run(x, {shape: sizes}).shape == tuple(sizes)


def test_simulated_gpus_draw_what_the_cpu_draws(monkeypatch):
    monkeypatch.setenv("GRAPHRT_SIM_GPUS", "1")
    drawn = []
    for device in ("/cpu:0", "/gpu:0"):
        with graphrt.Graph().as_default(), graphrt.device(device):
            logits = graphrt.constant([[0.0, 1.0, 2.0]])
            fetches = [
                random_api.random_uniform([5], seed=1),
                random_api.random_normal([5], seed=2),
                random_api.truncated_normal([50], seed=3),
                random_api.multinomial(logits, 7, seed=4),
                random_api.random_uniform([5], maxval=9, dtype=graphrt.int32, seed=5),
                random_api.random_poisson([2.0], [5], seed=6),
                random_api.stateless_uniform([5], [1, 2]),
            ]
            with graphrt.Session() as session:
                drawn.append([session.run(fetches) for _ in range(2)])
    for cpu, gpu in zip(*drawn, strict=True):
        for a, b in zip(cpu, gpu, strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("seed", [None, 4])
def test_a_crop_is_a_window_of_the_value(seed):
    value = np.arange(60).reshape(5, 4, 3)
    crop = random_api.random_crop(value, [2, 3, 3], seed=seed)
    assert crop.shape.as_list() == [2, 3, 3]
    windows = {value[i : i + 2, j : j + 3].tobytes() for i in range(4) for j in range(2)}
    with graphrt.Session() as session:
        drawn = {session.run(crop).tobytes() for _ in range(60)}
    assert drawn <= windows
    assert len(drawn) > 1


def test_a_crop_larger_than_the_value_is_an_error_that_shows_both():
    value = graphrt.placeholder(graphrt.float32, [None, None])
    crop = random_api.random_crop(value, [2, 5])
    with graphrt.Session() as session:
        with pytest.raises(InvalidArgumentError, match=r"Need value.shape >= size, got"):
            session.run(crop, {value: np.zeros((3, 4))})


def test_gamma_is_differentiable_by_alpha_and_beta_as_in_tensorflow(tf):
    def gradients(api, random):
        with api.Graph().as_default() as graph:
            alpha = api.constant([[0.5], [3.0]])
            beta = api.constant([1.0, 4.0, 2.0])
            stateless = random.stateless_gamma([5, 2, 3], [3, 4], alpha, beta)
            made = api.gradients(
                [random.gamma([5], alpha, beta, seed=1), stateless * stateless], [alpha, beta]
            )
            with api.Session(graph=graph) as session:
                return session.run(made)

    ours, theirs = gradients(graphrt, random_namespace), gradients(tf.compat.v1, tf.compat.v1.random)
    for mine, reference in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(mine, reference, rtol=1e-4)


def test_what_has_no_gradient_stops_it():
    x = graphrt.constant([[1.0, 2.0], [3.0, 4.0]])
    y = graphrt.reduce_sum(random_api.random_shuffle(x, seed=1))
    assert graphrt.gradients(y, x) == [None]


def test_the_graph_seed_gives_each_op_its_own_stream_by_its_number_among_those_without_a_seed():
    random_api.set_random_seed(12)
    assert random_api.get_seed(None) == (12, 0)
    assert random_api.get_seed(3) == (12, 3)
    assert random_api.get_seed(None) == (12, 1)
    with graphrt.Graph().as_default():
        assert random_api.get_seed(None) == (None, None)
        assert random_api.get_seed(3) == (87654321, 3)
        graphrt.set_random_seed(12)
        assert random_api.get_seed(None) == (12, 0)
    assert random_api.get_seed(None) == (12, 2)


def test_names_of_tensorflow_1_are_there():
    assert [n for n in V1_NAMES if not hasattr(graphrt, n)] == []
    assert [n for n in IN_NAMESPACE if not hasattr(graphrt.random, n)] == []


def test_arguments_that_do_not_fit_are_told_while_the_graph_is_built():
    with pytest.raises(ValueError, match="random_uniform draws .*int64, not uint8"):
        random_api.random_uniform([2], dtype=graphrt.uint8)
    with pytest.raises(ValueError, match="Must specify maxval for integer dtype"):
        random_api.random_uniform([2], dtype=graphrt.int32)
    with pytest.raises(ValueError, match="classes are int32 or int64, not float32"):
        random_api.categorical([[1.0]], 1, dtype=graphrt.float32)
    with pytest.raises(ValueError, match="both minval and maxval"):
        random_api.stateless_uniform([2], [1, 2], minval=None, maxval=3, dtype=graphrt.int32)
    with pytest.raises(ValueError, match="drawn over its whole range"):
        random_api.stateless_uniform([2], [1, 2], 0, 3, dtype=graphrt.uint32)
    with pytest.raises(ValueError, match="alg 'threefry' is not supported: 'philox'"):
        random_api.stateless_uniform([2], [1, 2], alg="threefry")
    with pytest.raises(ValueError, match="rank 2"):
        random_api.multinomial([1.0, 2.0], 3)
    with pytest.raises(ValueError, match="not compatible"):
        random_api.stateless_uniform([2], [1, 2, 3])


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (
            lambda feed: random_api.random_uniform([3], feed(5), feed(5), graphrt.int32),
            "Need minval < maxval, got 5 >= 5",
        ),
        (
            lambda feed: random_api.random_uniform(feed([2, -3])),
            r"every size of shape must be at least 0, got \[2, -3\]",
        ),
        (
            lambda feed: random_api.random_uniform(feed([[2]])),
            r"shape must be a vector, its shape is \[1, 1\]",
        ),
        (
            lambda feed: random_api.random_uniform([2], feed([1]), 3, graphrt.int32),
            r"minval must be 0-D, got shape \[1\]",
        ),
        (
            lambda feed: random_api.multinomial([[1.0]], feed(-1)),
            "num_samples should be non-negative, got -1",
        ),
        (
            lambda feed: random_api.stateless_normal([2], feed([1, 2, 3])),
            r"seed must have shape \[2\], not \[3\]",
        ),
        (
            lambda feed: random_api.stateless_poisson(feed([2, 2]), [1, 2], [1.0, 2.0, 3.0]),
            r"must end in the shape of lam",
        ),
        (
            lambda feed: random_api.random_poisson(feed(np.nan, graphrt.float32), [1]),
            "no float32 can be drawn for rate nan",
        ),
        (
            lambda feed: graphrt.raw_ops.StatelessRandomUniformV2(
                [2], np.uint64([1]), np.uint64([1, 2]), feed(2)
            ),
            "Unsupported algorithm id: 2",
        ),
    ],
)
def test_values_that_do_not_fit_are_told_by_the_step_with_the_op(build, message):
    feeds = {}

    def feed(value, dtype=graphrt.int32):
        node = graphrt.placeholder(dtype)
        feeds[node] = value
        return node

    drawn = build(feed)
    with graphrt.Session() as session, pytest.raises(graphrt.errors.OpError, match=message) as failure:
        session.run(drawn, feeds)
    assert "test_random.py" in str(failure.value)
