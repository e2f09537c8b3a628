"""The link as a machine: events in, frames and events out; no socket, no clock."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphrt.core.errors import NotFoundError, ResourceExhaustedError, UnavailableError
from graphrt.transport.link import BEAT, PIECE, SILENCE, Answered, Called, GivenUp, LinkMachine, Posted


def messages(machine, now=0.0):
    made = []
    while (message := machine.next_message(now)) is not None:
        made.append(message)
    return made


def deliver(sender, receiver, now=0.0):
    return [event for message in messages(sender, now) for event in receiver.received(message, now)]


def test_a_call_and_its_answer_meet_by_number():
    here, there = LinkMachine(0.0), LinkMachine(0.0)
    number = here.new_id()
    here.call(number, "/s/Method", b"question")
    (called,) = deliver(here, there)
    assert isinstance(called, Called) and (called.id, called.method, bytes(called.payload)) == (
        number,
        "/s/Method",
        b"question",
    )
    there.answer(called.id, [b"ans", b"wer"])
    (answered,) = deliver(there, here)
    assert isinstance(answered, Answered) and (answered.id, bytes(answered.payload), answered.error) == (
        number,
        b"answer",
        None,
    )


def test_an_error_crosses_whole_with_its_class():
    here, there = LinkMachine(0.0), LinkMachine(0.0)
    text = "é" * 50_000
    there.fail(7, NotFoundError(None, None, text))
    (answered,) = deliver(there, here)
    assert type(answered.error) is NotFoundError and answered.error.message == text


def test_frames_that_wait_leave_in_one_message():
    here, there = LinkMachine(0.0), LinkMachine(0.0)
    for i in range(20):
        here.post(1, b"%d" % i)
    (message,) = messages(here)
    assert [bytes(e.payload) for e in there.received(message, 0.0)] == [b"%d" % i for i in range(20)]


def test_a_big_payload_travels_in_pieces_and_small_frames_pass_between_them():
    here, there = LinkMachine(0.0), LinkMachine(0.0)
    big = np.arange(5 * PIECE // 8 + 3, dtype=np.int64)
    here.post(1, [b"head", memoryview(big.view(np.uint8))])
    first = here.next_message(0.0)
    assert there.received(first, 0.0) == []
    here.post(2, b"small")
    (small,) = there.received(here.next_message(0.0), 0.0)
    assert isinstance(small, Posted) and bytes(small.payload) == b"small"
    (whole,) = deliver(here, there)
    assert bytes(whole.payload[:4]) == b"head"
    assert np.array_equal(np.frombuffer(whole.payload, np.uint8)[4:].view(np.int64), big)


def test_two_big_payloads_share_the_link_piece_by_piece():
    here, there = LinkMachine(0.0), LinkMachine(0.0)
    here.post(1, b"a" * (3 * PIECE))
    here.post(2, b"b" * (2 * PIECE))
    done = deliver(here, there)
    # The shorter one is through first: neither waits for the other's end.
    assert [(e.kind, len(e.payload)) for e in done] == [(2, 2 * PIECE), (1, 3 * PIECE)]


def test_a_big_payload_becomes_memory_that_can_be_written():
    here, there = LinkMachine(0.0), LinkMachine(0.0)
    here.post(1, bytes(2 * PIECE))
    (posted,) = deliver(here, there)
    assert not posted.payload.readonly


@given(st.lists(st.binary(max_size=50), max_size=5))
def test_every_payload_is_aligned_in_its_message(payloads):
    here, there = LinkMachine(0.0), LinkMachine(0.0)
    for payload in payloads:
        here.call(here.new_id(), "/m" * (1 + len(payload) % 3), payload)
    for message in messages(here):
        start = np.frombuffer(message, np.uint8).ctypes.data
        for event in there.received(message, 0.0):
            assert bytes(event.payload) == payloads.pop(0)
            assert (
                not len(event.payload)
                or (np.frombuffer(event.payload, np.uint8).ctypes.data - start) % 16 == 0
            )


def test_giving_up_names_the_call():
    here, there = LinkMachine(0.0), LinkMachine(0.0)
    here.give_up(9)
    assert deliver(here, there) == [GivenUp(9)]


@pytest.mark.parametrize("message", [b"x", b"\x01" * 40, bytes(24) + b"rest", b"\x63" + bytes(31)])
def test_bytes_that_are_no_frames_end_the_link(message):
    with pytest.raises(UnavailableError, match="something else than frames"):
        LinkMachine(0.0).received(message, 0.0)


def test_a_further_piece_without_a_first_ends_the_link():
    here, there = LinkMachine(0.0), LinkMachine(0.0)
    here.post(1, bytes(2 * PIECE))
    first, second = messages(here)[:2]
    with pytest.raises(UnavailableError):
        there.received(second, 0.0)
    assert first


def test_silence_is_a_loss_and_a_sign_of_life_prevents_it():
    here, there = LinkMachine(0.0), LinkMachine(0.0)
    now = 0.0
    while now < 3 * SILENCE:
        now += BEAT / 2
        assert here.tick(now) is None
        assert deliver(here, there, now) == []
        assert there.tick(now) is None
        deliver(there, here, now)
    lost = here.tick(now + SILENCE + 1)
    assert isinstance(lost, UnavailableError) and f"{SILENCE + 1:.1f} s" in lost.message


def test_messages_are_bounded_on_both_sides(monkeypatch):
    here, there = LinkMachine(0.0), LinkMachine(0.0)
    here.post(1, bytes(2000))
    (message,) = messages(here)
    monkeypatch.setattr("graphrt.transport.link.MAX_PAYLOAD", 1000)
    with pytest.raises(UnavailableError, match="2000 bytes, where GRAPHRT_MAX_MESSAGE_BYTES allows 1000"):
        there.received(message, 0.0)
    with pytest.raises(ResourceExhaustedError, match="GRAPHRT_MAX_MESSAGE_BYTES"):
        here.post(1, bytes(1001))
    here.post(1, bytes(1000))
