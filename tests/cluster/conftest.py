"""Servers that end with their test."""

import importlib.util
import os

import pytest

_spec = importlib.util.spec_from_file_location(
    "cluster_processes", os.path.join(os.path.dirname(__file__), "processes.py")
)
processes = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(processes)


@pytest.fixture
def launch():
    """launch(cluster, job, index, tensorflow=False): a task in a process of its own."""
    started = []

    def launch(cluster, *tasks, **named):
        made = [processes.TaskProcess(cluster, job, index, **named) for job, index in tasks]
        started.extend(made)
        for each in made:
            each.wait_until_ready()
        return made

    yield launch
    for each in started:
        each.close()


@pytest.fixture
def addresses():
    return processes.addresses


@pytest.fixture
def in_process():
    """in_process(ps=1, worker=2): {(job, index): Server} on a network within this process."""
    import graphrt as tf

    started = []

    def make(config=None, protocol="in-process", **jobs):
        if protocol == "grpc":
            cluster = processes.addresses(**jobs)
        else:
            cluster = {
                job: [f"{os.urandom(4).hex()}-{job}:{i + 1}" for i in range(n)] for job, n in jobs.items()
            }
        made = {
            (job, i): tf.train.Server(cluster, job, i, protocol=protocol, config=config)
            for job, n in jobs.items()
            for i in range(n)
        }
        started.extend(made.values())
        return made

    yield make
    for server in started:
        server.stop()
