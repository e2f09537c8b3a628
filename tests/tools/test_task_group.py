"""TaskGroup: what is done when tasks end, signals come and time is over."""

import signal

import pytest

from graphrt.tools.task_group import KILLED_WITHIN_S, End, Say, Signal, Task, TaskGroup, Timer

PS, W0, W1 = Task("ps", 0, "a:1"), Task("worker", 0, "a:2"), Task("worker", 1, "a:3")
GRACE, LINGER = 5.0, 2.0


@pytest.fixture
def group():
    return TaskGroup([PS, W0, W1], GRACE, LINGER)


def test_all_ending_well_ends_the_run_with_0(group):
    assert group.on_exit(PS, 0) == []
    assert group.on_exit(W0, 0) == []
    assert group.on_exit(W1, 0) == [Timer(None), End(0)]


def test_parameter_servers_may_end_by_themselves_when_the_workers_have(group):
    assert group.on_exit(W1, 0) == []
    assert group.on_exit(W0, 0) == [Timer(LINGER)]
    assert group.on_exit(PS, 0) == [Timer(None), End(0)]


def test_parameter_servers_that_wait_for_ever_are_stopped_and_that_is_no_failure(group):
    group.on_exit(W1, 0)
    group.on_exit(W0, 0)
    assert group.on_timer() == [Signal(PS, signal.SIGTERM), Timer(GRACE)]
    assert group.on_exit(PS, -signal.SIGTERM) == [Timer(None), End(0)]


def test_a_failure_while_lingering_counts(group):
    group.on_exit(W1, 0)
    group.on_exit(W0, 0)
    assert group.on_exit(PS, 7) == [Say("ps:0 failed with exit status 7"), Timer(GRACE), Timer(None), End(7)]


def test_a_failure_stops_the_others_and_its_status_is_the_runs(group):
    assert group.on_exit(W1, 3) == [Say("worker:1 failed with exit status 3; stopping ps:0, worker:0"),
                                    Signal(PS, signal.SIGTERM), Signal(W0, signal.SIGTERM), Timer(GRACE)]
    assert group.on_exit(W0, 1) == []  # a consequence of the first
    assert group.on_exit(PS, -signal.SIGTERM) == [Timer(None), End(3)]


def test_a_task_that_a_signal_ended_gives_a_shells_status(group):
    say, *_ = group.on_exit(W0, -signal.SIGKILL)
    assert say == Say("worker:0 was ended by SIGKILL; stopping ps:0, worker:1")
    group.on_exit(W1, -signal.SIGTERM)
    assert group.on_exit(PS, -signal.SIGTERM)[-1] == End(128 + signal.SIGKILL)


def test_tasks_that_do_not_stop_are_killed(group):
    group.on_exit(W1, 3)
    group.on_exit(W0, -signal.SIGTERM)
    assert group.on_timer() == [Say("ps:0 did not stop within 5 s: killed"), Signal(PS, signal.SIGKILL),
                                Timer(KILLED_WITHIN_S)]
    assert group.on_exit(PS, -signal.SIGKILL) == [Timer(None), End(3)]


def test_tasks_that_cannot_be_killed_are_given_up(group):
    group.on_signal(signal.SIGTERM)
    group.on_timer()
    told = Say("ps:0, worker:0, worker:1 cannot be killed: given up")
    assert group.on_timer() == [told, Timer(None), End(143)]


@pytest.mark.parametrize(("number", "status"), [
    (signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_is_passed_on(group, number, status):
    assert group.on_signal(number) == [
        Say(f"{number.name}: stopping ps:0, worker:0, worker:1"),
        *(Signal(t, number) for t in (PS, W0, W1)), Timer(GRACE)]
    assert group.on_exit(W0, 0) == group.on_exit(W1, -number) == []
    assert group.on_exit(PS, 1) == [Timer(None), End(status)]


def test_a_second_signal_kills(group):
    group.on_signal(signal.SIGINT)
    group.on_exit(W0, 0)
    assert group.on_signal(signal.SIGINT) == [Signal(PS, signal.SIGKILL), Signal(W1, signal.SIGKILL),
                                              Timer(KILLED_WITHIN_S)]


def test_a_signal_after_a_failure_kills_and_the_failure_is_the_status(group):
    group.on_exit(W1, 3)
    assert Signal(W0, signal.SIGKILL) in group.on_signal(signal.SIGINT)
    group.on_exit(W0, -signal.SIGKILL)
    assert group.on_exit(PS, -signal.SIGKILL)[-1] == End(3)


def test_parameter_servers_alone_are_waited_for():
    group = TaskGroup([PS], GRACE, LINGER)
    assert group.on_exit(PS, 0) == [Timer(None), End(0)]


def test_of_several_kinds_of_workers_all_are_waited_for():
    chief = Task("chief", 0, "a:4")
    group = TaskGroup([chief, PS, W0], GRACE, LINGER)
    assert group.on_exit(W0, 0) == []
    assert group.on_exit(chief, 0) == [Timer(LINGER)]
