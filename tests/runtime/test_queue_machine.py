"""The queue machine does what a slow and simple model of it does, whatever happens in whatever order."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from graphrt.core.errors import CancelledError, OutOfRangeError
from graphrt.core.queue_state import Fifo, QueueMachine, Shuffled

EVENT = st.one_of(
    st.tuples(st.just("enqueue"), st.integers(1, 4)),
    st.tuples(st.just("dequeue"), st.integers(0, 4)),
    st.tuples(st.just("dequeue_up_to"), st.integers(1, 4)),
    st.tuples(st.just("cancel"), st.integers(0, 9)),
    st.tuples(st.just("close"), st.integers(0, 5)),
)
EVENTS = st.lists(EVENT, max_size=14)


class Model:
    """A FIFO queue, by asking again and again whether the first attempt of each kind can go on."""

    def __init__(self, capacity: int) -> None:
        self.capacity, self.held, self.closed = capacity, [], False
        self.enqueues: list[tuple[int, list[int]]] = []
        self.dequeues: list[tuple[int, int, bool, list[int]]] = []
        self.answers: dict[int, Any] = {}

    def go_on(self) -> None:
        changed = True
        while changed:
            changed = False
            if self.enqueues:
                number, rest = self.enqueues[0]
                if rest and len(self.held) < self.capacity:
                    self.held.append(rest.pop(0))
                    changed = True
                if not rest:
                    self.answers[number] = "in"
                    self.enqueues.pop(0)
                    changed = True
            if self.dequeues:
                number, count, up_to, got = self.dequeues[0]
                if len(got) < count and self.held:
                    got.append(self.held.pop(0))
                    changed = True
                if len(got) == count:
                    self.answers[number] = list(got)
                    self.dequeues.pop(0)
                    changed = True
                elif self.closed and not self.enqueues and not self.held:
                    self.dequeues.pop(0)
                    if up_to and got:
                        self.answers[number] = list(got)
                    else:
                        self.held = got + self.held
                        self.answers[number] = OutOfRangeError
                    changed = True

    def event(self, number: int, kind: str, n: int, element: int) -> None:
        if kind == "enqueue":
            if self.closed:
                self.answers[number] = CancelledError
            else:
                self.enqueues.append((number, [element + i for i in range(n)]))
        elif kind.startswith("dequeue"):
            self.dequeues.append((number, n, kind == "dequeue_up_to", []))
        elif kind == "cancel":
            waiting = [a[0] for a in [*self.enqueues, *self.dequeues]]
            if n in waiting:
                self.answers[n] = "cancelled"
                self.enqueues = [a for a in self.enqueues if a[0] != n]
                for a in self.dequeues:
                    if a[0] == n:
                        self.held = a[3] + self.held
                self.dequeues = [a for a in self.dequeues if a[0] != n]
        else:
            self.closed = True
            if n == 5:
                for a in self.enqueues:
                    self.answers[a[0]] = CancelledError
                self.enqueues = []
        self.go_on()


def seen(answer: Any) -> Any:
    """An answer in the model's words."""
    if answer is None:
        return "in"
    if isinstance(answer, CancelledError):
        return "cancelled" if "over" in str(answer) else CancelledError
    if isinstance(answer, OutOfRangeError):
        return OutOfRangeError
    return [e[0] for e in answer]


def play(machine: QueueMachine, events: list[tuple[str, int]]) -> tuple[dict[int, Any], list[int]]:
    """The answers that each attempt has got, and all elements that were offered."""
    answers: dict[int, Any] = {}
    tokens: dict[int, Any] = {}
    offered: list[int] = []
    element = 0
    for number, (kind, n) in enumerate(events):

        def done(answer: Any, number: int = number) -> None:
            assert number not in answers, "answered twice"
            answers[number] = seen(answer)

        if kind == "enqueue":
            offered += range(element, element + n)
            tokens[number], tell = machine.on_enqueue([(element + i,) for i in range(n)], done)
            element += n
        elif kind.startswith("dequeue"):
            tokens[number], tell = machine.on_dequeue(n, kind == "dequeue_up_to", done)
        elif kind == "cancel":
            tell = machine.on_cancel(tokens.get(n), CancelledError(None, None, "over"))
        else:
            tell = machine.on_close(n == 5)
        for call, answer in tell:
            call(answer)
        # A dequeue that ends incomplete puts back what it had, also where others have come in since.
        assert (
            machine.size <= machine.capacity or machine.is_closed or any(k == "cancel" for k, _ in events)
        ), "more than fits"
    return answers, offered


@settings(max_examples=500)
@given(EVENTS, st.integers(1, 4))
def test_a_fifo_queue_does_what_the_model_does(events: list[tuple[str, int]], capacity: int) -> None:
    model, element = Model(capacity), 0
    for number, (kind, n) in enumerate(events):
        model.event(number, kind, n, element)
        element += n if kind == "enqueue" else 0
    answers, _ = play(QueueMachine("q", "FIFOQueue", capacity, Fifo()), events)
    assert answers == model.answers


@given(EVENTS, st.integers(2, 6), st.integers(0, 3), st.integers(0, 2**32))
def test_a_shuffling_queue_loses_and_doubles_nothing(
    events: list[tuple[str, int]], capacity: int, minimum: int, seed: int
) -> None:
    bits = iter(range(seed, seed + 10_000, 7))
    held = Shuffled(lambda: next(bits) * 2654435761 % 2**32)
    machine = QueueMachine("q", "RandomShuffleQueue", capacity, held, min(minimum, capacity - 1))
    answers, offered = play(machine, events)
    out = [e for a in answers.values() if isinstance(a, list) for e in a]
    assert len(set(out)) == len(out) and set(out) <= set(offered)


def test_a_shuffling_queue_keeps_its_minimum_while_it_is_open() -> None:
    machine, got = QueueMachine("q", "RandomShuffleQueue", 10, Shuffled(lambda: 0), min_after_dequeue=3), []
    machine.on_enqueue([(i,) for i in range(5)], lambda answer: None)
    for _ in range(4):
        _, tell = machine.on_dequeue(1, False, got.append)
        for done, answer in tell:
            done(answer)
    assert len(got) == 2 and machine.size == 3
    for done, answer in machine.on_close(False):
        done(answer)
    assert len(got) == 4 and machine.size == 1


def test_what_a_cancelled_dequeue_had_gathered_goes_back_in_its_order() -> None:
    machine, got = QueueMachine("q", "FIFOQueue", 5, Fifo()), []
    machine.on_enqueue([(1,), (2,)], lambda answer: None)
    attempt, tell = machine.on_dequeue(3, False, got.append)
    assert not tell and machine.size == 0
    for done, answer in machine.on_cancel(attempt, CancelledError(None, None, "over")):
        done(answer)
    _, tell = machine.on_dequeue(2, False, got.append)
    for done, answer in tell:
        done(answer)
    assert isinstance(got[0], CancelledError) and got[1] == [(1,), (2,)]


def test_a_batch_larger_than_the_queue_comes_as_elements_do() -> None:
    machine, got = QueueMachine("q", "FIFOQueue", 2, Fifo()), []
    machine.on_dequeue(5, False, got.append)
    for i in range(5):
        _, tell = machine.on_enqueue([(i,)], lambda answer: None)
        for done, answer in tell:
            done(answer)
    assert got == [[(0,), (1,), (2,), (3,), (4,)]]
