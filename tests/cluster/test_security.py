"""Who may talk to a server, where it listens, and what its ops may touch."""

import os
import shutil
import socket
import subprocess

import pytest

import graphrt as tf
from graphrt.core import errors, file_access
from graphrt.transport import security


@pytest.fixture
def certificates(tmp_path):
    """An authority, and a certificate of it for localhost: the environment that names them."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("no openssl to make certificates with")

    def run(*arguments):
        subprocess.run([openssl, *arguments], cwd=tmp_path, check=True, capture_output=True, timeout=60)

    run(
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:P-256",
        "-nodes",
        "-keyout",
        "ca.key",
        "-out",
        "ca.pem",
        "-subj",
        "/CN=authority",
        "-days",
        "2",
    )
    run(
        "req",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:P-256",
        "-nodes",
        "-keyout",
        "task.key",
        "-out",
        "task.csr",
        "-subj",
        "/CN=localhost",
    )
    (tmp_path / "names").write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\n")
    run(
        "x509",
        "-req",
        "-in",
        "task.csr",
        "-CA",
        "ca.pem",
        "-CAkey",
        "ca.key",
        "-CAcreateserial",
        "-out",
        "task.pem",
        "-days",
        "2",
        "-extfile",
        "names",
    )
    return {
        "GRAPHRT_TLS_CERT": str(tmp_path / "task.pem"),
        "GRAPHRT_TLS_KEY": str(tmp_path / "task.key"),
        "GRAPHRT_TLS_CA": str(tmp_path / "ca.pem"),
    }


def answer(target):
    with (
        tf.Graph().as_default(),
        tf.Session(target, config=tf.ConfigProto(operation_timeout_in_ms=5000)) as session,
    ):
        return session.run(tf.constant(20) + 1)


def test_a_token_is_asked_of_every_connection(addresses, launch, monkeypatch):
    cluster = addresses(worker=2)
    tasks = launch(cluster, ("worker", 0), ("worker", 1), environment={"GRAPHRT_CLUSTER_TOKEN": "secret"})
    with pytest.raises(errors.UnauthenticatedError, match="GRAPHRT_CLUSTER_TOKEN"):
        answer(tasks[0].target)
    monkeypatch.setenv("GRAPHRT_CLUSTER_TOKEN", "another")
    with pytest.raises(errors.UnauthenticatedError):
        answer(tasks[0].target)
    monkeypatch.setenv("GRAPHRT_CLUSTER_TOKEN", "secret")
    assert answer(tasks[0].target) == 21
    # Tasks show it to each other.
    with tf.device("/job:worker/task:1"):
        v = tf.Variable(1.0)
    with tf.Session(tasks[0].target) as session:
        session.run(v.initializer)
        assert session.run(v + 1.0) == 2.0


def test_plain_calls_without_the_token_are_refused_too(addresses, launch):
    import grpc

    cluster = addresses(worker=1)
    launch(cluster, ("worker", 0), environment={"GRAPHRT_CLUSTER_TOKEN": "secret"})
    with grpc.insecure_channel(cluster["worker"][0], [("grpc.enable_http_proxy", 0)]) as channel:
        with pytest.raises(grpc.RpcError) as caught:
            channel.unary_unary("/tensorflow.WorkerService/GetStatus")(b"", timeout=20)
    assert caught.value.code() == grpc.StatusCode.UNAUTHENTICATED


def test_mutual_tls(addresses, launch, monkeypatch, certificates):
    cluster = addresses(worker=2)
    tasks = launch(cluster, ("worker", 0), ("worker", 1), environment=certificates)
    with pytest.raises(errors.UnavailableError):
        answer(tasks[0].target)
    # A client that trusts the authority and shows no certificate of it is refused as well.
    import grpc

    with open(certificates["GRAPHRT_TLS_CA"], "rb") as file:
        trusting = grpc.ssl_channel_credentials(file.read())
    with grpc.secure_channel(cluster["worker"][0], trusting, [("grpc.enable_http_proxy", 0)]) as channel:
        with pytest.raises(grpc.RpcError):
            channel.unary_unary("/tensorflow.WorkerService/GetStatus")(b"", timeout=5)
    for name, value in certificates.items():
        monkeypatch.setenv(name, value)
    with tf.device("/job:worker/task:1"):
        v = tf.Variable(1.0)
    with tf.Session(tasks[0].target) as session:
        session.run(v.initializer)
        assert session.run(v + 1.0) == 2.0


def test_tls_settings_that_lack_something_say_what(monkeypatch, tmp_path):
    monkeypatch.setenv("GRAPHRT_TLS_CERT", str(tmp_path / "no.pem"))
    with pytest.raises(errors.InvalidArgumentError, match="GRAPHRT_TLS_KEY, GRAPHRT_TLS_CA is not set"):
        security.server_credentials()
    monkeypatch.setenv("GRAPHRT_TLS_KEY", str(tmp_path / "no.key"))
    monkeypatch.setenv("GRAPHRT_TLS_CA", str(tmp_path / "no.ca"))
    with pytest.raises(errors.InvalidArgumentError, match="GRAPHRT_TLS_CERT names"):
        security.channel_credentials()


def test_a_server_listens_on_its_own_address_only(addresses):
    address = addresses(worker=1)["worker"][0].replace("localhost", "127.0.0.1")
    port = int(address.rpartition(":")[2])
    with tf.train.Server({"worker": [address]}, "worker", 0):
        socket.create_connection(("127.0.0.1", port), 10).close()
        with pytest.raises(OSError):
            socket.create_connection(("127.0.0.2", port), 2).close()


def test_an_open_address_without_protection_warns_once(monkeypatch):
    monkeypatch.setattr(security, "_warned", False)
    with pytest.warns(UserWarning, match="GRAPHRT_CLUSTER_TOKEN"):
        security.warn_if_open("192.0.2.7:2222")
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        security.warn_if_open("192.0.2.7:2222")
        monkeypatch.setattr(security, "_warned", False)
        security.warn_if_open("localhost:2222")
        security.warn_if_open("[::1]:2222")
        monkeypatch.setenv("GRAPHRT_CLUSTER_TOKEN", "x")
        security.warn_if_open("192.0.2.7:2222")


def test_files_of_ops_are_confined_to_folders(monkeypatch, tmp_path):
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    inside.mkdir(), outside.mkdir()
    os.symlink(outside, inside / "link")
    assert file_access.confined(str(outside / "f")) == str(outside / "f")
    monkeypatch.setenv("GRAPHRT_FILE_ROOTS", str(inside))
    assert file_access.confined(str(inside / "a" / "b")) == str(inside / "a" / "b")
    for path in (
        outside / "f",
        inside / ".." / "outside" / "f",
        inside / "link" / "f",
        str(inside) + "more/f",
    ):
        with pytest.raises(errors.PermissionDeniedError, match="GRAPHRT_FILE_ROOTS"):
            file_access.confined(str(path))
    printing = tf.print("x", output_stream=f"file://{outside}/log")
    with tf.Session() as session, pytest.raises(errors.PermissionDeniedError):
        session.run(printing)
    assert not (outside / "log").exists()
