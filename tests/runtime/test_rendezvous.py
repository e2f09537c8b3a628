"""Every receiver is called once: with what was sent under its key, in any order, or with the first error."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphrt.core.errors import AbortedError, CancelledError, InvalidArgumentError, OpError
from graphrt.runtime.rendezvous import Rendezvous, RendezvousState, make_key, parse_key

KEYS = ("a", "b", "c")
EVENTS = st.lists(st.tuples(st.sampled_from(("send", "recv", "abort")), st.sampled_from(KEYS)), max_size=12)


@given(EVENTS)
def test_the_machine_answers_every_receiver_once_and_right(events: list[tuple[str, str]]) -> None:
    state = RendezvousState()
    sent: dict[str, int] = {}
    asked: dict[str, int] = {}
    error: OpError | None = None
    answers: dict[int, list[Any]] = {}
    for number, (kind, key) in enumerate(events):
        todo: list[Any] = []
        if kind == "abort":
            todo = state.on_abort(CancelledError(None, None, f"error {number}"))
            error = error or state.error
        elif kind == "send":
            if error is None and key in sent:
                with pytest.raises(AbortedError, match="sent twice"):
                    state.on_send(key, number, False)
            else:
                todo = state.on_send(key, number, number % 2 == 0)
                if error is None:
                    sent[key] = number
        else:
            answers[number] = []
            todo = state.on_recv(key, answers[number].append, float(number))
            if error is None and key in asked:
                (only,) = todo
                assert only.done == answers[number].append and isinstance(only.error, AbortedError)
            elif error is None:
                asked[key] = number
        for done, value, is_dead, failure in todo:
            done((value, is_dead, failure))
        assert all(len(a) <= 1 for a in answers.values())
        # Nobody waits for what is there.
        waiting = {k for k, _ in state.awaited()}
        assert waiting == ({k for k in asked if k not in sent} if error is None else set())
        for k, n in asked.items():
            if k in sent and error is None:
                assert answers[n] == [(sent[k], sent[k] % 2 == 0, None)]
    for got in answers.values():
        if got and got[0][2] is not None and not isinstance(got[0][2], AbortedError):
            assert got[0][2] is state.error, "the first error, not a later one"
    if error is not None:
        assert all(len(a) == 1 for a in answers.values()), "an abort leaves nobody waiting"


def test_a_receiver_after_an_abort_is_told_at_once() -> None:
    rendezvous, got = Rendezvous(), []
    rendezvous.abort(CancelledError(None, None, "first"))
    rendezvous.abort(CancelledError(None, None, "second"))
    rendezvous.recv("k", lambda *answer: got.append(answer))
    assert str(got[0][2]) == "first"


def test_tensors_meet_their_receivers_across_threads() -> None:
    rendezvous, got = Rendezvous(), {}
    keys = [str(i) for i in range(300)]

    def receive() -> None:
        for key in keys:
            rendezvous.recv(key, lambda value, dead, error, key=key: got.__setitem__(key, value))

    def send(part: list[str]) -> None:
        for key in part:
            rendezvous.send(key, int(key))

    threads = [
        threading.Thread(target=receive),
        *(threading.Thread(target=send, args=(keys[i::3],)) for i in range(3)),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert got == {k: int(k) for k in keys} and rendezvous.awaited() == []


def test_keys_are_tensorflows_and_are_read_back() -> None:
    key = make_key(
        "/job:a/replica:0/task:0/device:CPU:0", -1, "/job:b/replica:0/task:1/device:GPU:0", "edge_3_x"
    )
    assert key == (
        "/job:a/replica:0/task:0/device:CPU:0;ffffffffffffffff;/job:b/replica:0/task:1/device:GPU:0;edge_3_x;0:0"
    )
    assert parse_key(key) == (
        "/job:a/replica:0/task:0/device:CPU:0",
        2**64 - 1,
        "/job:b/replica:0/task:1/device:GPU:0",
        "edge_3_x",
        "0:0",
    )
    for bad in ("", "a;b;c", key.replace("ffffffffffffffff", "xyz"), key + ";more"):
        with pytest.raises(InvalidArgumentError, match="malformed rendezvous key"):
            parse_key(bad)
