"""Threads for work that blocks: as many as block at once, kept for the next, and always enough."""

from __future__ import annotations

import os
import threading

import pytest

from graphrt.runtime.elastic_threads import ElasticThreads


def test_all_that_blocks_at_once_runs_at_once() -> None:
    threads, meeting = ElasticThreads("test"), threading.Barrier(20)
    met = []
    for _ in range(20):
        threads.submit(lambda: met.append(meeting.wait(20)))
    for _ in range(2000):
        if len(met) == 20:
            break
        threading.Event().wait(0.01)
    assert sorted(met) == list(range(20))


def test_an_idle_thread_is_used_again() -> None:
    threads, used = ElasticThreads("test"), set()
    for _ in range(30):
        over = threading.Event()
        threads.submit(lambda over=over: (used.add(threading.get_ident()), over.set()))
        assert over.wait(20)
        for _ in range(200):
            if threads._idle:
                break
            threading.Event().wait(0.005)
    assert len(used) == 1


def test_work_that_comes_while_a_thread_gives_up_is_done() -> None:
    threads = ElasticThreads("test", idle_seconds=0.0005)
    for _ in range(300):
        over = threading.Event()
        threads.submit(over.set)
        assert over.wait(20)


def test_they_are_daemons() -> None:
    threads, told = ElasticThreads("test"), []
    over = threading.Event()
    threads.submit(lambda: (told.append(threading.current_thread().daemon), over.set()))
    assert over.wait(20) and told == [True]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_forked_child_does_not_count_on_its_parents_threads() -> None:
    from graphrt.runtime.elastic_threads import elastic_threads

    over = threading.Event()
    elastic_threads.submit(over.set)
    assert over.wait(20)
    for _ in range(400):
        if elastic_threads._idle:
            break
        threading.Event().wait(0.005)
    child = os.fork()
    if child == 0:
        done = threading.Event()
        elastic_threads.submit(done.set)
        os._exit(0 if done.wait(10) else 1)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
