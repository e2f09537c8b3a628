"""`graphrt serve`: a server that answers until a signal stops it."""

import json
import signal

import numpy as np
import pytest

import graphrt as tf
from graphrt.tools import serve
from tests.processes import running

CLUSTER = {"ps": ["localhost:2222"], "worker": ["localhost:2223", "localhost:2224"]}


def served(*arguments, **named):
    return running("-m", "graphrt", "serve", *arguments, **named)


def address(run):
    return run.wait_for(" serves at ").partition(" serves at ")[2].split()[0]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_server_runs_sessions_until_a_signal_stops_it(number):
    with served("--cpus", 2) as run:
        target = address(run)
        with tf.device("/cpu:1"):
            x = tf.placeholder(tf.float32, [3])
            y = x * 2.0
        with tf.Session(target) as session:
            assert [d.name for d in session.list_devices()] == [
                f"/job:localhost/replica:0/task:0/device:CPU:{i}" for i in range(2)]
            np.testing.assert_array_equal(session.run(y, {x: [1, 2, 3]}), np.float32([2, 4, 6]))
        run.process.send_signal(number)
        assert run.end() == 0
        assert len(run.lines) == 1, run.text


def test_the_task_is_the_one_that_is_asked_for():
    cluster = "ps|localhost:0,worker|localhost:0;localhost:0"
    with served("--cluster", cluster, "--job", "worker", "--task", 1) as run:
        assert run.wait_for("serves").startswith("graphrt: /job:worker/task:1 serves at grpc://localhost:")
        run.process.terminate()
        assert run.end() == 0


@pytest.mark.parametrize("form", [
    json.dumps(CLUSTER), json.dumps({**CLUSTER, "ps": {"0": "localhost:2222"}}),
    "ps|localhost:2222,worker|localhost:2223;localhost:2224", "file"])
def test_a_cluster_is_read_in_every_form(tmp_path, form):
    if form == "file":
        file = tmp_path / "cluster.json"
        file.write_text(json.dumps(CLUSTER))
        form = str(file)
    assert serve.parse_cluster(form).as_dict() == CLUSTER


def test_without_a_cluster_tf_config_says_which_task_it_is(monkeypatch):
    monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": CLUSTER, "task": {"type": "worker", "index": 1}}))
    cluster, job, index = serve.task_of(serve._parser().parse_args([]))
    assert (cluster.as_dict(), job, index) == (CLUSTER, "worker", 1)
    cluster, job, index = serve.task_of(serve._parser().parse_args(["--job", "ps", "--task", "0"]))
    assert (job, index) == ("ps", 0)


@pytest.mark.parametrize(("arguments", "said"), [
    (["--cluster", "nowhere"],
     "--cluster nowhere: neither JSON, nor 'job|host:port', nor a file to read (No such file or directory)"),
    (["--cluster", "{"], "--cluster is not a cluster"),
    (["--cluster", '{"ps": 3}'], "the tasks of job 'ps' must be addresses, not their number 3"),
    (["--cluster", "ps|localhost"], "'ps|localhost' is not 'job|host:port;host:port'"),
    (["--cluster", json.dumps(CLUSTER)], "Must specify an explicit job_name"),
    (["--cluster", json.dumps(CLUSTER), "--job", "worker"], "Must specify an explicit task_index"),
    (["--cluster", json.dumps(CLUSTER), "--job", "wrker"], "No such job in cluster: 'wrker'; there are"),
    (["--cluster", json.dumps(CLUSTER), "--job", "ps", "--task", "4"], "No task with index 4 in job 'ps'"),
    (["--job", "ps"], "--job and --task name a task of a cluster: give --cluster, or set TF_CONFIG"),
    (["--protocol", "carrier-pigeon"], "unknown protocol 'carrier-pigeon'"),
    (["--cpus", "0"], "--cpus is at least 1"),
])
def test_a_server_that_cannot_be_is_refused(monkeypatch, capsys, arguments, said):
    monkeypatch.delenv("TF_CONFIG", raising=False)
    assert serve.main(arguments) == 2
    assert said in capsys.readouterr().err
