"""Embedding look-ups and the losses on sampled classes: TensorFlow's nodes and values."""

import numpy as np
import pytest

import graphrt
from tests.same_graph import assert_same_nodes, assert_same_values

RNG = np.random.default_rng(9)
TABLE = RNG.standard_normal((7, 3)).astype(np.float32)
PARTS = {"mod": [TABLE[i::3] for i in range(3)], "div": [TABLE[:3], TABLE[3:5], TABLE[5:]]}
IDS = np.array([[0, 6, 3], [2, 2, 5]])


def part_tensors(tf, strategy):
    return [tf.constant(p, name=f"part{i}") for i, p in enumerate(PARTS[strategy])]


def sparse(tf, values=(1, 3, 0, 6, 3), dtype="int64"):
    return tf.SparseTensor(
        tf.constant([[0, 0], [0, 1], [1, 2], [2, 0], [2, 1]], tf.int64),
        tf.constant(values, dtype),
        tf.constant([3, 4], tf.int64),
    )


def weights_of(tf):
    return sparse(tf, (0.5, 2.0, 1.0, 3.0, 0.25), "float32")


BUILDS = {
    "one table": lambda tf: tf.nn.embedding_lookup(tf.constant(TABLE), IDS),
    "named": lambda tf: tf.nn.embedding_lookup(tf.constant(TABLE), tf.constant(IDS), name="e"),
    "one table in a list": lambda tf: tf.nn.embedding_lookup([tf.constant(TABLE)], [1, 2]),
    "clipped": lambda tf: tf.nn.embedding_lookup(tf.constant(TABLE), IDS, max_norm=1.0),
    **{
        s: lambda tf, s=s: tf.nn.embedding_lookup(part_tensors(tf, s), tf.constant(IDS), partition_strategy=s)
        for s in PARTS
    },
    "parts of int64 ids": lambda tf: tf.nn.embedding_lookup(
        part_tensors(tf, "div"), tf.constant(IDS, tf.int64), "div", name="p"
    ),
    "clipped parts": lambda tf: tf.nn.embedding_lookup(part_tensors(tf, "mod"), IDS, max_norm=1.0),
    **{
        f"sparse {c}": lambda tf, c=c: tf.nn.embedding_lookup_sparse(
            tf.constant(TABLE), sparse(tf), None, combiner=c
        )
        for c in ("sum", "mean", "sqrtn")
    },
    **{
        f"sparse weighted {c}": lambda tf, c=c: tf.nn.embedding_lookup_sparse(
            tf.constant(TABLE), sparse(tf), weights_of(tf), combiner=c, name="w"
        )
        for c in ("sum", "mean", "sqrtn")
    },
    "sparse parts": lambda tf: tf.nn.embedding_lookup_sparse(
        part_tensors(tf, "div"), sparse(tf), None, partition_strategy="div", combiner="sum"
    ),
    "sparse clipped": lambda tf: tf.nn.embedding_lookup_sparse(
        tf.constant(TABLE), sparse(tf), None, combiner="sum", max_norm=1.0
    ),
    "sparse weighted fast": lambda tf: tf.nn.embedding_lookup_sparse(
        tf.constant(TABLE), sparse(tf), weights_of(tf), combiner="sum", allow_fast_lookup=True
    ),
}


@pytest.mark.parametrize("name", BUILDS)
def test_nodes_are_tensorflows(tf, name):
    assert_same_nodes(tf, BUILDS[name])


@pytest.mark.parametrize("name", BUILDS)
def test_values_are_tensorflows(tf, name):
    assert_same_values(tf, BUILDS[name])


SAFE = {
    "safe": lambda tf: tf.nn.safe_embedding_lookup_sparse(tf.constant(TABLE), sparse(tf, (1, -1, -1, 6, 3))),
    "safe with a default": lambda tf: tf.nn.safe_embedding_lookup_sparse(
        [tf.constant(TABLE)], sparse(tf, (1, -1, -1, 6, 3)), default_id=2
    ),
    "safe weighted": lambda tf: tf.nn.safe_embedding_lookup_sparse(
        tf.constant(TABLE), sparse(tf), sparse(tf, (0.5, -2.0, 0.0, 3.0, 0.25), "float32")
    ),
    "safe weighted sum": lambda tf: tf.nn.safe_embedding_lookup_sparse(
        tf.constant(TABLE), sparse(tf), sparse(tf, (0.5, -2.0, 0.0, 3.0, 0.25), "float32"), combiner="sum"
    ),
    "safe parts": lambda tf: tf.nn.safe_embedding_lookup_sparse(part_tensors(tf, "div"), sparse(tf)),
    "safe of rank 3": lambda tf: tf.nn.safe_embedding_lookup_sparse(
        tf.constant(TABLE),
        tf.SparseTensor(
            tf.constant([[0, 0, 0], [1, 1, 1]], tf.int64),
            tf.constant([1, 2], tf.int64),
            tf.constant([2, 2, 2], tf.int64),
        ),
    ),
}


@pytest.mark.parametrize("name", SAFE)
def test_safe_lookups_give_tensorflows_values(tf, name):
    assert_same_values(tf, SAFE[name])


@pytest.mark.parametrize("use_resource", [False, True])
@pytest.mark.parametrize("kind", ["one", "parts", "partitioned", "sparse"])
def test_variables_of_each_kind_are_looked_up_and_trained(tf, use_resource, kind):
    """The rows, and the table after a step of gradient descent on them: only its used rows change."""

    def build(module):
        partitioner = module.fixed_size_partitioner(3) if kind == "partitioned" else None
        with module.variable_scope("v", use_resource=use_resource):
            if kind == "parts":
                table = [
                    module.get_variable(f"t{i}", initializer=module.constant(p))
                    for i, p in enumerate(PARTS["div"])
                ]
            else:
                table = module.get_variable(
                    "t",
                    [7, 3],
                    initializer=module.constant_initializer(0.5)
                    if partitioner
                    else module.constant_initializer(TABLE),
                    partitioner=partitioner,
                )
        if kind == "sparse":
            rows = module.nn.embedding_lookup_sparse(table, sparse(module), None, combiner="sum")
        else:
            rows = module.nn.embedding_lookup(table, IDS, partition_strategy="div")
        variables = module.trainable_variables()
        grads = module.gradients(rows * rows, variables)
        dense = [module.convert_to_tensor(g) for g in grads]
        return [rows, *dense]

    assert_same_values(tf, build, initialize=True)


@pytest.mark.parametrize(
    ("build", "error", "message"),
    [
        (lambda tf: tf.nn.embedding_lookup(None, IDS), ValueError, "params must be specified"),
        (lambda tf: tf.nn.embedding_lookup([], IDS), ValueError, "Length of params is currently 0"),
        (
            lambda tf: tf.nn.embedding_lookup(part_tensors(tf, "mod"), IDS, partition_strategy="hash"),
            ValueError,
            "Unrecognized partition strategy: hash",
        ),
        (
            lambda tf: tf.nn.embedding_lookup_sparse(TABLE, IDS, None),
            TypeError,
            "sp_ids must be SparseTensor",
        ),
        (
            lambda tf: tf.nn.embedding_lookup_sparse(TABLE, sparse(tf), [1.0]),
            TypeError,
            "sp_weights must be either None or SparseTensor",
        ),
        (
            lambda tf: tf.nn.embedding_lookup_sparse(TABLE, sparse(tf), None, combiner="max"),
            ValueError,
            "combiner must be one of",
        ),
    ],
)
def test_bad_arguments_are_named(build, error, message):
    with graphrt.Graph().as_default(), pytest.raises(error, match=message):
        build(graphrt)


def test_an_id_outside_the_table_ends_the_step():
    with graphrt.Graph().as_default(), graphrt.Session() as session:
        ids = graphrt.placeholder("int32", [1])
        rows = graphrt.nn.embedding_lookup(graphrt.constant(TABLE), ids)
        with pytest.raises(graphrt.errors.InvalidArgumentError, match="7"):
            session.run(rows, {ids: [7]})


# -- losses on sampled classes
# ---------------------------------------------------------------------------------------


def sampled(loss, **named):
    def build(tf):
        tf.set_random_seed(3)
        weights = tf.constant(RNG_WEIGHTS, name="weights")
        return getattr(tf.nn, loss)(
            weights=weights,
            biases=tf.constant(RNG_BIASES),
            labels=tf.constant([[1], [4]], tf.int64),
            inputs=tf.constant(TABLE[:2]),
            num_sampled=5,
            num_classes=20,
            **named,
        )

    return build


RNG_WEIGHTS, RNG_BIASES = (
    RNG.standard_normal((20, 3)).astype(np.float32),
    RNG.standard_normal(20).astype(np.float32),
)
SAMPLED = {
    "nce_loss": sampled("nce_loss"),
    "nce_loss without hits": sampled("nce_loss", remove_accidental_hits=True),
    "sampled_softmax_loss": sampled("sampled_softmax_loss"),
    "seeded sampled_softmax_loss": sampled("sampled_softmax_loss", seed=8),
}


@pytest.mark.parametrize("name", SAMPLED)
def test_sampled_losses_have_tensorflows_nodes_and_draws(tf, name):
    assert_same_nodes(tf, SAMPLED[name])
    assert_same_values(tf, SAMPLED[name], steps=3, rtol=1e-4)


def test_sampled_losses_train_the_rows_they_use(tf):
    def build(module):
        loss = SAMPLED["sampled_softmax_loss"](module)
        return module.convert_to_tensor(module.gradients(loss, loss.graph.get_tensor_by_name("weights:0"))[0])

    assert_same_values(tf, build, rtol=1e-4)


def test_samplers_by_name_draw_what_tensorflow_draws(tf):
    def build(module):
        classes = module.constant([[1, 2], [3, 4]], module.int64)
        named = {"num_true": 2, "num_sampled": 5, "unique": True}
        made = [
            module.nn.uniform_candidate_sampler(classes, range_max=30, seed=1, **named),
            module.nn.log_uniform_candidate_sampler(classes, range_max=30, seed=1, **named),
            module.nn.learned_unigram_candidate_sampler(classes, range_max=30, seed=1, **named),
            module.nn.all_candidate_sampler(classes, **named),
            module.nn.fixed_unigram_candidate_sampler(
                classes, range_max=5, unigrams=[1.0, 2.0, 3.0, 4.0, 5.0], seed=1, **named
            ),
        ]
        hits = module.nn.compute_accidental_hits(classes, made[3][0], num_true=2)
        return [t for m in (*made, hits) for t in m]

    assert_same_nodes(tf, build)
    assert_same_values(tf, build, steps=2)
