"""The steps that a worker knows, as a machine: events in any order, repeated, or lost."""

import pytest

from graphrt.cluster.step_table import FAILED_AFTER, NEVER_BEGAN_AFTER, StepTable
from graphrt.core.errors import AbortedError, DeadlineExceededError, InternalError


def test_a_tensor_before_run_graph_is_the_same_steps():
    table = StepTable()
    reached = table.on_reach(5, 0.0)
    assert table.on_run(5, 0, 1.0) is reached and table.on_reach(5, 2.0) is reached


def test_a_repeated_step_is_aborted_while_it_runs_and_after_it_is_over():
    table = StepTable()
    entry = table.on_run(5, 0, 0.0)
    with pytest.raises(AbortedError, match="runs here already"):
        table.on_run(5, 0, 0.0)
    table.on_over(entry, False, False, 1.0)
    with pytest.raises(AbortedError):
        table.on_run(5, 0, 2.0)


def test_a_repeated_request_is_aborted_and_request_0_is_not_checked():
    table = StepTable()
    table.on_run(1, 77, 0.0)
    with pytest.raises(AbortedError, match="77"):
        table.on_run(2, 77, 0.0)
    table.on_run(3, 0, 0.0)
    table.on_run(4, 0, 0.0)


def test_an_end_that_overtakes_run_graph_keeps_the_step_from_running():
    table = StepTable()
    assert table.on_end(9, None) is None
    with pytest.raises(AbortedError, match="before it began"):
        table.on_run(9, 0, 0.0)


def test_who_comes_late_is_told_the_steps_own_error():
    table = StepTable()
    table.on_run(9, 0, 0.0)
    table.on_end(9, InternalError(None, None, "the first one"))
    with pytest.raises(InternalError, match="the first one"):
        table.on_reach(9, 1.0)


def test_a_step_that_never_begins_expires_and_says_so():
    table = StepTable()
    table.on_reach(3, 0.0)
    assert table.on_tick(NEVER_BEGAN_AFTER - 1) == []
    ((entry, error),) = table.on_tick(NEVER_BEGAN_AFTER + 1)
    assert entry.step_id == 3 and isinstance(error, DeadlineExceededError) and len(table) == 0


def test_a_step_that_went_well_keeps_its_tensors_and_one_that_failed_does_not_for_ever():
    table = StepTable()
    good, bad = table.on_run(1, 0, 0.0), table.on_run(2, 0, 0.0)
    table.on_over(good, True, False, 1.0)
    table.on_over(bad, True, True, 1.0)
    expired = table.on_tick(FAILED_AFTER + 100)
    assert [entry for entry, _ in expired] == [bad] and table.on_reach(1, 200.0) is good


def test_nothing_grows_with_the_number_of_steps():
    table = StepTable()
    for step in range(1, 20_001):
        table.on_over(table.on_run(step, step, 0.0), False, False, 0.0)
    assert len(table) == 0 and len(table._tombstones) < 5000 and len(table._requests) < 5000
