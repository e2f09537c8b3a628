"""Programs that are unusual, large or careless: they work, or say why not."""

from __future__ import annotations

import os
import sys
import threading
import warnings
from typing import Any

import numpy as np
import pytest

import graphrt as tf

# -- graphs of unusual form --------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["data", "control", "gradient"])
def test_graphs_that_are_thousands_of_nodes_deep(kind: str) -> None:
    depth = 2 * sys.getrecursionlimit() + 3000
    x = tf.placeholder(tf.float32, [2])
    y = x
    if kind == "control":
        for _ in range(depth):
            with tf.control_dependencies([y]):
                y = tf.no_op() if y is not x else tf.identity(x)
        with tf.control_dependencies([y]):
            y = x + 1.0
    else:
        for _ in range(depth if kind == "data" else depth // 2):
            y = -y
    fetches = tf.gradients(y, x)[0] if kind == "gradient" else y
    with tf.Session() as sess:
        for _ in range(3):
            got = sess.run(fetches, {x: [1.0, 2.0]})
    sign = 1.0 if (depth if kind == "data" else depth // 2) % 2 == 0 else -1.0
    assert got.tolist() == {"data": [sign, 2 * sign], "control": [2.0, 3.0], "gradient": [sign, sign]}[kind]


def test_one_tensor_that_thousands_take_and_thousands_of_fetches() -> None:
    x = tf.placeholder(tf.float32, [2])
    shared = tf.exp(x)
    parts = [shared * float(i) for i in range(2000)]
    total = tf.add_n(parts)
    with tf.Session() as sess:
        for _ in range(3):
            got = sess.run([total, *parts], {x: [0.0, 0.0]})
    assert got[0].tolist() == [1999000.0] * 2 and [p[0] for p in got[1:]] == list(range(2000))


def test_a_tensor_fetched_a_thousand_times_comes_every_time() -> None:
    x = tf.placeholder(tf.float32, [2])
    y = x * 2.0
    with tf.Session() as sess:
        for _ in range(3):
            got = sess.run([y] * 1000 + [[y, {"again": y}]], {x: [1.0, 2.0]})
            assert all(a.tolist() == [2.0, 4.0] for a in got[:1000]) and got[1000][1]["again"].tolist() == [
                2.0,
                4.0,
            ]


# -- shapes and values -------------------------------------------------------------------------------------


def test_batches_of_no_rows_train_and_predict() -> None:
    x = tf.placeholder(tf.float32, [None, 3])
    v = tf.Variable(np.ones((3, 2), np.float32))
    h = tf.nn.softmax(tf.matmul(x, v))
    train = tf.train.AdamOptimizer().minimize(tf.reduce_sum(h))
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for _ in range(3):
            got, _ = sess.run([h, train], {x: np.zeros((0, 3))})
            assert got.shape == (0, 2)
        assert (sess.run(v) == 1.0).all()


def test_more_shapes_than_a_plan_keeps_all_give_the_right_values() -> None:
    x = tf.placeholder(tf.float32, [None, None])
    y = tf.reduce_sum(tf.square(x) * 2.0 + 1.0, 1)
    with tf.Session() as sess:
        for turn in range(3):
            for rows in range(1, 60):
                got = sess.run(y, {x: np.full((rows, 1 + rows % 5), turn)})
                assert got.tolist() == [(1 + rows % 5) * (2.0 * turn * turn + 1.0)] * rows


def test_nan_infinities_and_signed_zeros_pass_without_a_warning() -> None:
    x = tf.placeholder(tf.float32, [None])
    y = [tf.log(x), 1.0 / x, tf.sqrt(x), tf.exp(x), tf.reduce_max(x), tf.reduce_sum(x), x - x]
    given = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 3e38], np.float32)
    with tf.Session() as sess, warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(3):
            log, inverse, root, exp, largest, total, difference = sess.run(y, {x: given})
    np.testing.assert_array_equal(log[:5], [np.nan, np.inf, np.nan, -np.inf, -np.inf])
    np.testing.assert_array_equal(inverse[:5], np.array([np.nan, 0.0, -0.0, np.inf, -np.inf], np.float32))
    assert np.signbit(inverse[2]) and np.isnan(root[2]) and np.isinf(exp[5]) and np.isnan(difference[1])
    assert np.isnan(largest) and np.isnan(total)


@pytest.mark.parametrize(
    "form",
    [
        "gaps",
        "fortran",
        "reversed",
        "read-only",
        "big-endian",
        "list",
        "matrix",
        "masked",
        "broadcast",
        "unaligned",
        "float64",
        "subclass",
    ],
)
def test_feeds_in_any_form_of_memory_give_the_same(form: str) -> None:
    class Marked(np.ndarray):
        def __array_ufunc__(self, *args: Any, **named: Any) -> Any:
            raise AssertionError("a user's class reached a kernel")

    plain = np.arange(24, dtype=np.float32).reshape(4, 6)
    if form == "broadcast":
        plain = np.ones((4, 6), np.float32) * np.arange(6, dtype=np.float32)
    wide = np.zeros((8, 12), np.float32)
    wide[::2, ::2] = plain
    frozen = plain.copy()
    frozen.flags.writeable = False
    shifted = np.zeros(4 * 6 * 4 + 1, np.uint8)[1:].view(np.float32).reshape(4, 6)
    shifted[...] = plain
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PendingDeprecationWarning)
        matrix = np.matrix(plain)
    given = {
        "gaps": wide[::2, ::2],
        "fortran": np.asfortranarray(plain),
        "reversed": plain[::-1, ::-1].copy()[::-1, ::-1],
        "read-only": frozen,
        "big-endian": plain.astype(">f4"),
        "list": plain.tolist(),
        "matrix": matrix,
        "masked": np.ma.array(plain),
        "broadcast": np.broadcast_to(np.arange(6, dtype=np.float32), (4, 6)),
        "unaligned": shifted,
        "float64": plain.astype(np.float64),
        "subclass": plain.view(Marked),
    }[form]
    x = tf.placeholder(tf.float32, [None, 6])
    v = tf.Variable(np.zeros((4, 6), np.float32), use_resource=True)
    y = [
        tf.matmul(x * 2.0, x, transpose_b=True),
        tf.transpose(x),
        tf.reshape(x, [-1]),
        x[1:],
        tf.assign(v, x),
    ]
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for _ in range(3):
            product, turned, flat, rest, assigned = sess.run(y, {x: given})
            np.testing.assert_array_equal(product, 2.0 * plain @ plain.T)
            np.testing.assert_array_equal(turned, plain.T)
            np.testing.assert_array_equal(flat, plain.ravel())
            np.testing.assert_array_equal(rest, plain[1:])
            np.testing.assert_array_equal(assigned, plain)


@pytest.mark.parametrize("source", ["feed", "constant", "resource variable", "ref variable", "computed"])
def test_a_fetched_array_is_the_callers_to_write_to(source: str) -> None:
    """Contiguous, writable, and nothing that any later step sees, whatever view of whatever it is."""
    x = tf.placeholder(tf.float32, [3, 4])
    ones = np.ones((3, 4), np.float32)
    base = {
        "feed": lambda: x,
        "constant": lambda: tf.constant(ones),
        "computed": lambda: x * 2.0,
        "resource variable": lambda: tf.Variable(ones, use_resource=True).read_value(),
        "ref variable": lambda: tf.Variable(ones, use_resource=False).read_value(),
    }[source]()
    made = [
        base,
        tf.transpose(base),
        base[:, 1:],
        base[1:2],
        base[::-1],
        tf.reshape(base, [-1]),
        tf.broadcast_to(base[:1], [5, 4]),
        tf.tile(base, [1, 1]),
        tf.identity(base),
        tf.unstack(base)[1],
        tf.stop_gradient(base),
        tf.split(base, 2, 1)[1],
        tf.reduce_sum(base, []),
        tf.cast(base, tf.float32),
        tf.expand_dims(base, 1),
        tf.squeeze(base[:1]),
        base[1, 2],
        tf.linalg.diag_part(base),
        tf.gather(base, [0, 2]),
        tf.concat([base], 0),
        tf.stack([base]),
    ]
    given = ones.copy()
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for tensor in made:
            for _ in range(3):
                got = np.asarray(sess.run(tensor, {x: given}))
                assert got.flags.c_contiguous
                if got.ndim:
                    got[...] = 99.0
        for got in sess.run(made, {x: given}):
            assert (got == (2.0 if source == "computed" else 1.0)).all()
    assert (given == 1.0).all()


def test_a_small_part_of_a_large_value_does_not_keep_it_alive() -> None:
    x = tf.placeholder(tf.float32, [None])
    first = (x * 2.0)[:10]
    with tf.Session() as sess:
        for _ in range(3):
            got = sess.run(first, {x: np.ones(1 << 20)})
            assert got.base is None or got.base.nbytes < 1 << 10


# -- variables of another shape ----------------------------------------------------------------------------


@pytest.mark.parametrize("resource", [False, True])
def test_plans_notice_that_a_variable_has_got_another_shape(resource: bool) -> None:
    given = tf.placeholder(tf.float32, None)
    v = tf.Variable(
        tf.zeros([2]) if resource else np.zeros(2, np.float32),
        use_resource=resource,
        validate_shape=not resource,
        shape=tf.TensorShape(None) if resource else None,
    )
    assign = tf.assign(v, given, validate_shape=False)
    total = v.read_value() * 2.0 + 1.0
    with tf.control_dependencies([assign]):
        after = v.read_value() * 3.0
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for size in (2, 2, 2, 5, 5, 5, 1, 1, 1, 2, 2, 2):
            sess.run(assign, {given: np.ones(size)})
            for _ in range(3):
                assert sess.run(total).tolist() == [3.0] * size
        for size in (3, 3, 3, 4, 3, 4, 1):
            assert sess.run(after, {given: np.ones(size)}).tolist() == [3.0] * size


# -- threads and processes ---------------------------------------------------------------------------------


def test_a_graph_may_grow_while_it_runs() -> None:
    graph = tf.get_default_graph()
    x = tf.placeholder(tf.float32, [3])
    y = x * 2.0
    failures: list[BaseException] = []
    over = threading.Event()

    def build() -> None:
        try:
            with graph.as_default():
                for i in range(600):
                    tf.identity(y + float(i))
        except BaseException as error:
            failures.append(error)
        over.set()

    def run() -> None:
        try:
            while not over.is_set():
                assert sess.run(y, {x: [1, 2, 3]}).tolist() == [2.0, 4.0, 6.0]
                last = graph.get_operations()[-1].outputs
                if last:
                    sess.run(last[0], {x: [1, 2, 3]})
        except BaseException as error:
            failures.append(error)

    with tf.Session() as sess:
        threads = [threading.Thread(target=f) for f in (build, run, run)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    assert not failures and over.is_set()


def test_threads_that_meet_a_signature_and_trace_it_at_the_same_time_all_get_their_own_values() -> None:
    """Segments are compiled for shapes and for traces while others run."""
    x = tf.placeholder(tf.float32, [None])
    y = x
    for i in range(60):
        y = y * 1.0 + float(i)
    with tf.device("/cpu:1"):
        z = tf.reduce_sum(y) + tf.cast(tf.size(x), tf.float32)
    failures: list[Any] = []
    trace = tf.RunOptions(trace_level=tf.RunOptions.FULL_TRACE)

    def work(number: int) -> None:
        try:
            for size in range(1, 12):
                options = (trace, None)[(number + size) % 2]
                got = sess.run(
                    z, {x: np.full(size, number, np.float32)}, options, tf.RunMetadata() if options else None
                )
                assert got == size * (number + 1770.0) + size
        except BaseException as error:
            failures.append(error)

    for _ in range(5):
        with tf.Session(config=tf.ConfigProto(device_count={"CPU": 2})) as sess:
            threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(60)
        assert not failures, failures[0]


def test_concurrent_updates_of_a_resource_variable_lose_nothing_and_tear_no_read() -> None:
    v = tf.Variable(np.zeros(4096, np.float32), use_resource=True)
    grow, read = tf.assign_add(v, np.ones(4096, np.float32)).op, v.read_value() + 0.0
    torn: list[Any] = []
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())

        def update() -> None:
            for _ in range(200):
                sess.run(grow)

        def look() -> None:
            for _ in range(200):
                got = sess.run(read)
                if got.min() != got.max():
                    torn.append(got)

        threads = [threading.Thread(target=f) for f in (update, look, update, look)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert not torn and (sess.run(v) == 400.0).all()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_forked_child_goes_on_with_its_parents_session() -> None:
    x = tf.placeholder(tf.float32, [300, 300])
    large = tf.placeholder(tf.float32, [None])
    v = tf.Variable(1.0)
    queue = tf.FIFOQueue(3, tf.float32)
    fetches = [
        tf.reduce_sum(tf.matmul(x, x)),
        tf.reduce_sum(tf.py_func(lambda a: a + 1.0, [x], tf.float32) * 2.0),
        v.read_value(),
    ]
    put, take, doubled = queue.enqueue(1.0), queue.dequeue(), large * 2.0
    given = np.ones((300, 300), np.float32)
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())

        def go() -> list[Any]:
            sess.run(put)
            return [
                *sess.run(fetches, {x: given}),
                sess.run(take),
                sess.run(doubled, {large: np.ones(1 << 20)})[-1],
            ]

        wanted = go()
        go()
        child = os.fork()
        if child == 0:
            try:
                os._exit(0 if go() == wanted else 1)
            finally:
                os._exit(2)
        for _ in range(2000):
            found, status = os.waitpid(child, os.WNOHANG)
            if found:
                break
            threading.Event().wait(0.01)
        else:
            os.kill(child, 9)
            os.waitpid(child, 0)
            pytest.fail("the child hangs")
        assert os.waitstatus_to_exitcode(status) == 0 and go() == wanted


# -- feeds of several parts --------------------------------------------------------------------------------


def test_feeds_of_several_parts_beside_others_go_where_they_belong() -> None:
    """IndexedSlices without a dense shape take two of the three parts that a fetch of them gives."""
    slices = tf.IndexedSlices(tf.placeholder(tf.float32, [None, 2]), tf.placeholder(tf.int32, [None]))
    sparse = tf.SparseTensor(
        tf.placeholder(tf.int64, [None, 1]), tf.placeholder(tf.float32, [None]), tf.placeholder(tf.int64, [1])
    )
    x, y = tf.placeholder(tf.float32, []), tf.placeholder(tf.float32, [])
    fetches = [slices.values * 2.0, slices.indices + 1, sparse.values * 3.0, x + 1.0, y + 2.0]
    with tf.Session() as sess:
        got_slices = sess.run(slices, {slices: ([[1.0, 2.0]], [3])})
        for _ in range(3):
            got = sess.run(fetches, {slices: got_slices, x: 10.0, sparse: ([[0]], [5.0], [4]), y: 20.0})
            assert [np.asarray(g).tolist() for g in got] == [[[2.0, 4.0]], [4], [15.0], 11.0, 22.0]
            got = sess.run(fetches, {(x, y): (30.0, 40.0), slices: got_slices, sparse: ([[0]], [5.0], [4])})
            assert got[3] == 31.0 and got[4] == 42.0


@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        (tf.int32, np.array([1, 2**40])),
        (tf.int32, np.int64(2**31)),
        (tf.uint8, np.array([-1])),
        (tf.int64, np.array([2**63], np.uint64)),
        (tf.int32, np.array([1.0])),
        (tf.float32, np.array([1j])),
        (tf.int32, 2**40),
        (tf.int32, 1.5),
    ],
)
def test_values_that_a_dtype_does_not_hold_are_refused(dtype: Any, value: Any) -> None:
    x = tf.placeholder(dtype, None)
    with tf.Session() as sess, warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(TypeError, match="cannot feed|larger type"):
            sess.run(x, {x: value})


@pytest.mark.parametrize(
    "value", [np.array([1, 2]), np.int64(7), np.array([3], np.uint64), np.array([], np.int64), [1, 2], True]
)
def test_integers_that_fit_are_fed_from_any_integer_type(value: Any) -> None:
    x = tf.placeholder(tf.int32, None)
    with tf.Session() as sess:
        got = sess.run(x, {x: value})
    assert got.dtype == np.int32 and np.array_equal(got, value)


def test_arguments_that_are_no_feeds_and_no_options_are_refused_by_name() -> None:
    x = tf.placeholder(tf.float32, [2])
    with tf.Session() as sess:
        with pytest.raises(TypeError, match="feed_dict must be a dictionary"):
            sess.run(x, [1.0, 2.0])
        with pytest.raises(TypeError, match=r"options must be a tf\.RunOptions"):
            sess.run(x, {x: [1.0, 2.0]}, 3)


def test_partial_runs_that_are_over_leave_nothing_and_those_that_are_not_end_with_the_session() -> None:
    a, b = tf.placeholder(tf.float32, []), tf.placeholder(tf.float32, [])
    c = a + 1.0
    d = c * b
    sess = tf.Session()
    for turn in range(5):
        handle = sess.partial_run_setup([c, d], [a, b])
        assert sess.partial_run(handle, c, {a: turn}) == turn + 1.0
        assert sess.partial_run(handle, d, {b: 2.0}) == 2.0 * (turn + 1.0)
        with pytest.raises(tf.errors.InvalidArgumentError, match="there is no partial run"):
            sess.partial_run(handle, d)
    assert not sess._partial and not sess._master.running
    handle = sess.partial_run_setup([c, d], [a, b])
    failures: list[BaseException] = []

    def wait() -> None:
        try:
            sess.partial_run(handle, d, {a: 1.0})
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    thread.join(0.05)
    sess.close()
    thread.join(20)
    assert not thread.is_alive() and isinstance(failures[0], (tf.errors.CancelledError, RuntimeError))
