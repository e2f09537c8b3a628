"""Ports for a cluster on this machine."""

import socket

import pytest

from graphrt.tools import free_ports as module
from graphrt.tools.free_ports import LOOPBACK, free_ports


def test_ports_are_different_free_and_not_of_those_that_connections_take():
    found = free_ports(20)
    assert len(set(found)) == 20
    assert max(found) < module._first_ephemeral()
    for port in found:
        with socket.socket() as server:
            server.bind((LOOPBACK, port))


def test_a_port_on_which_something_listens_is_not_given(monkeypatch):
    with socket.create_server((LOOPBACK, 0)) as server:
        taken = server.getsockname()[1]
        assert not module._is_free(taken)
        draws = iter([taken, taken, *free_ports(1)])
        monkeypatch.setattr(module.random, "SystemRandom", lambda: type("Draws", (), {
            "randrange": lambda self, low, high: next(draws)})())
        assert taken not in free_ports(1)


def test_too_few_free_ports_are_an_error_that_says_so(monkeypatch):
    monkeypatch.setattr(module, "_is_free", lambda port: False)
    with pytest.raises(OSError, match="found only 0 of 2 free ports from 10240 to"):
        free_ports(2)
