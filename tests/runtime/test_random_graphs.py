"""Random programs give the same bits however they are placed, optimised, planned, traced and run."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import graphrt as tf
from graphrt.runtime import arena, plan
from tests.runtime.program_writer import Program
from tests.runtime.random_graphs import feed_value, program, shrunk

PROGRAMS = st.binary(min_size=60, max_size=300)
ONE_CPU = [""]
DEVICES = ["/cpu:0", "/cpu:1", "/gpu:0", "/gpu:1"]
# Failing programs are made smaller by `holds_for`, within a bound that hypothesis does not have.
EXAMPLES = {
    "suppress_health_check": list(HealthCheck),
    "phases": (Phase.explicit, Phase.reuse, Phase.generate),
}


@pytest.fixture(autouse=True)
def harsh_memory(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Buffers are poisoned between uses, small arrays recycled as large ones; two simulated GPUs."""
    monkeypatch.setenv("GRAPHRT_SIM_GPUS", "2")
    monkeypatch.setattr(arena, "POISON", True)
    monkeypatch.setattr(arena, "RECYCLED_FROM", 64)
    monkeypatch.setattr(plan, "RECYCLED_FROM", 64)
    yield


def config(optimised: bool, devices: list[str]) -> Any:
    made = tf.ConfigProto(allow_soft_placement=True)
    made.device_count["CPU"] = 2 if any("cpu:1" in d for d in devices) else 1
    made.device_count["GPU"] = sum("gpu" in d for d in devices)
    if not optimised:
        made.graph_options.optimizer_options.opt_level = -1
    return made


class Built:
    """A program on some devices, in a session."""

    def __init__(self, made: Program, devices: list[str], optimised: bool) -> None:
        self.program = made
        with tf.Graph().as_default() as self.graph:
            self.tensors = made.build(tf, devices)
            start = tf.global_variables_initializer()
        self.session = tf.Session(graph=self.graph, config=config(optimised, devices))
        self.session.run(start)

    def run(self, options: Any = None) -> list[list[Any]]:
        """What each step fetches. Fetched arrays must keep their values, and fed ones must not change."""
        fetched: list[list[Any]] = []
        copies: list[list[Any]] = []
        for number, step in enumerate(self.program.steps):
            feeds = {
                self.tensors[i]: feed_value(self.program.types[i], step.batch, i + number // 2)
                for i in step.feeds
            }
            before = [v.copy() for v in feeds.values()]
            metadata = tf.RunMetadata() if options is not None else None
            made = self.session.run([self.tensors[i] for i in step.fetches], feeds, options, metadata)
            for given_array, was in zip(feeds.values(), before):
                np.testing.assert_array_equal(given_array, was, err_msg="a fed array was written")
            fetched.append(made)
            copies.append([np.array(v) for v in made])
        for step_values, step_copies in zip(fetched, copies):
            for value, copy in zip(step_values, step_copies):
                assert_same_bits(np.asarray(value), copy, "a fetched array changed after its step")
        return copies


def results(made: Program, devices: list[str], optimised: bool, options: Any = None) -> list[list[Any]]:
    built = Built(made, devices, optimised)
    try:
        return built.run(options)
    finally:
        built.session.close()


def assert_same_bits(a: np.ndarray, b: np.ndarray, what: str) -> None:
    assert a.dtype == b.dtype and a.shape == b.shape, f"{what}: {a.dtype}{a.shape}, {b.dtype}{b.shape}"
    if a.tobytes() != b.tobytes():
        # NaN has many forms, and which one a sum gives is the processor's affair.
        same = (a == b) & (np.signbit(a) == np.signbit(b)) if a.dtype.kind == "f" else a == b
        if a.dtype.kind == "f":
            same |= np.isnan(a) & np.isnan(b)
        assert same.all(), f"{what}:\n{a}\n{b}"


def assert_same(made: Program, wanted: list[list[Any]], got: list[list[Any]], what: str) -> None:
    for number, (step, a, b) in enumerate(zip(made.steps, wanted, got)):
        for fetch, x, y in zip(step.fetches, a, b):
            assert_same_bits(x, y, f"{what}: v{fetch} in step {number} of {made!r}")


def holds_for(source: bytes, check: Callable[[bytes], None]) -> None:
    """Run `check(source)`; where it fails, fail with fewer bytes if they do too."""

    def fails(shorter: bytes) -> bool:
        try:
            check(shorter)
        except Exception:
            return True
        return False

    try:
        check(source)
    except Exception as first:
        small = shrunk(source, fails)
        try:
            check(small)
        except Exception as error:
            raise AssertionError(f"{error}\nfor the bytes {small!r}:\n{program(small)}") from error
        raise AssertionError(f"once in a while, for {source!r}") from first


@settings(max_examples=350, **EXAMPLES)
@given(PROGRAMS, st.integers(0, 5))
def test_partitioned_optimised_and_planned_steps_give_the_bits_of_plain_ones(
    source: bytes, turn: int
) -> None:
    devices = DEVICES[turn % 4 :] + DEVICES[: turn % 4]

    def check(source: bytes) -> None:
        made = program(source)
        plain = results(made, ONE_CPU, optimised=False)
        assert_same(made, plain, results(made, ONE_CPU, optimised=True), "optimised")
        assert_same(made, plain, results(made, devices, optimised=turn > 0), "partitioned")

    holds_for(source, check)


@settings(max_examples=50, **EXAMPLES)
@given(PROGRAMS)
def test_traced_steps_and_a_second_session_give_the_same_bits(source: bytes) -> None:
    trace = tf.RunOptions(trace_level=tf.RunOptions.FULL_TRACE)

    def check(source: bytes) -> None:
        made = program(source)
        first = results(made, ONE_CPU, optimised=True)
        assert_same(made, first, results(made, ONE_CPU, optimised=True), "second session")
        assert_same(made, first, results(made, ["/cpu:0", "/gpu:0"], True, trace), "traced")

    holds_for(source, check)


@settings(max_examples=100, **EXAMPLES)
@given(PROGRAMS, st.booleans())
def test_eight_threads_in_one_session_give_the_bits_of_one(source: bytes, on_devices: bool) -> None:
    made = program(source, stateless=True)
    built = Built(made, DEVICES if on_devices else ONE_CPU, optimised=True)
    alone = built.run()
    got: dict[int, Any] = {}

    def work(number: int) -> None:
        try:
            got[number] = built.run()
        except BaseException as error:
            got[number] = error

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    built.session.close()
    assert len(got) == 8
    for number, steps in got.items():
        if isinstance(steps, BaseException):
            raise steps
        assert_same(made, alone, steps, f"thread {number}")


@settings(max_examples=12, **EXAMPLES)
@given(PROGRAMS)
def test_fetched_arrays_keep_their_values_for_a_hundred_steps(source: bytes) -> None:
    made = program(source)
    made.steps = (made.steps * 100)[:100]
    built = Built(made, DEVICES, optimised=True)
    built.run()
    built.session.close()
