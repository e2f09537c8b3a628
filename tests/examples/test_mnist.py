"""The examples run as their help says, end with what they promise, and leave nothing behind."""

import re
import shlex
import shutil
import signal
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from graphrt.examples import FILES, load_mnist
from graphrt.tools.free_ports import LOOPBACK, free_ports
from tests.processes import assert_gone, processes_with, running

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
SCRIPTS = ("mnist_softmax.py", "mnist_cnn.py", "mnist_replica.py", "mnist_softmax_distributed.py")


@pytest.fixture(scope="module")
def small_mnist(tmp_path_factory):
    """A folder with the first 3,000 images of MNIST, and 400 to test with."""
    folder, mnist = tmp_path_factory.mktemp("mnist"), load_mnist()
    for name in FILES:
        split, count = (mnist.train, 3000) if name.startswith("train") else (mnist.test, 400)
        if "images" in name:
            data, sizes = split.pixels[:count], (count, 28, 28)
        else:
            data, sizes = split.labels[:count], (count,)
        header = bytes([0, 0, 8, len(sizes)]) + struct.pack(f">{len(sizes)}I", *sizes)
        (folder / name).write_bytes(header + data.tobytes())
    return folder


def accuracy(text: str) -> float:
    return float(re.search(r"test accuracy (\d+\.\d+) %", text)[1])


def assert_is_picture(file: Path, *devices: str) -> None:
    """A page that needs nothing else, with the devices and edges between them."""
    page = file.read_text()
    assert page.startswith("<!DOCTYPE html>") and "<svg" in page
    assert not re.search(r"<(script|link|img|iframe)\b|@import|url\((?!#)|(src|href)=\"(?!#)", page)
    assert all(device in page for device in devices)
    if len(devices) > 1:
        assert re.search(r'class="[^"]*\bcut\b', page), "no cut edge is drawn"


@pytest.mark.parametrize("script", SCRIPTS)
def test_help_says_how_to_run_it(script):
    with running(EXAMPLES / script, "--help") as run:
        assert run.end() == 0
    assert f"examples/{script}" in run.text and "default" in run.text


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["mnist_softmax.py", "--steps", "0"], "--steps, --batch and --devices must be at least 1"),
        (["mnist_cnn.py", "--epochs", "0"], "--epochs and --rate must be above 0"),
        (
            ["mnist_softmax_distributed.py", "--hosts", "localhost:1"],
            "--hosts has the addresses of three servers",
        ),
        (["mnist_replica.py"], "start me with `graphrt launch --ps 1 --workers 2 examples/mnist_replica.py`"),
    ],
)
def test_wrong_arguments_are_refused(monkeypatch, arguments, said):
    monkeypatch.delenv("TF_CONFIG", raising=False)
    with running(EXAMPLES / arguments[0], *arguments[1:]) as run:
        assert run.end() == 2
    assert said in run.text and "Traceback" not in run.text


@pytest.mark.parametrize("script", SCRIPTS[:2])
def test_a_folder_without_the_data_is_named(tmp_path, script):
    with running(EXAMPLES / script, "--data", tmp_path) as run:
        assert run.end() == 1
    assert str(tmp_path) in run.text and "lacks" in run.text and "Traceback" not in run.text


def test_softmax_over_two_devices_learns_and_draws_its_step(small_mnist, tmp_path):
    picture = tmp_path / "new" / "step.html"
    with running(
        EXAMPLES / "mnist_softmax.py",
        "--steps",
        100,
        "--devices",
        2,
        "--data",
        small_mnist,
        "--picture",
        picture,
    ) as run:
        assert run.end() == 0, run.text
    assert accuracy(run.text) > 75
    assert re.search(r"\d ms a step in the session", run.text)
    assert re.search(r"  MatMul +\d+\.\d us +\d+\.\d %", run.text)
    assert f"the partitioned graph: {picture}" in run.text
    assert_is_picture(picture, "device:CPU:0", "device:CPU:1")


def test_cnn_over_three_devices_learns_and_draws_its_step(small_mnist, tmp_path):
    picture = tmp_path / "step.html"
    with running(
        EXAMPLES / "mnist_cnn.py",
        "--steps",
        25,
        "--batch",
        30,
        "--devices",
        3,
        "--data",
        small_mnist,
        "--picture",
        picture,
    ) as run:
        assert run.end() == 0, run.text
    assert accuracy(run.text) > 60
    assert "25 steps in" in run.text
    assert_is_picture(picture, *(f"device:CPU:{i}" for i in range(3)))


def test_an_interrupt_ends_an_example_without_a_traceback(small_mnist, tmp_path):
    with running(
        EXAMPLES / "mnist_softmax.py",
        "--steps",
        10_000_000,
        "--data",
        small_mnist,
        "--picture",
        tmp_path / "step.html",
        env={"GRAPHRT_PROGRESS": "live", "PYTHONUNBUFFERED": "1"},
    ) as run:
        run.wait_for("step")
        run.process.send_signal(signal.SIGINT)
        assert run.end() == 1
    assert "mnist_softmax: interrupted" in run.text and "Traceback" not in run.text


@pytest.mark.parametrize(
    ("model", "steps", "least"), [("softmax", 100, 75), ("mlp", 40, 60), ("cnn", 30, 25)]
)
def test_replicas_train_together_over_parameter_servers(small_mnist, tmp_path, model, steps, least):
    picture = tmp_path / "step.html"
    with running(
        "-m",
        "graphrt",
        "launch",
        "--ps",
        2,
        "--workers",
        2,
        EXAMPLES / "mnist_replica.py",
        "--model",
        model,
        "--steps",
        steps,
        "--batch",
        50,
        "--data",
        small_mnist,
        "--picture",
        picture,
    ) as run:
        assert run.end() == 0, run.text
    assert accuracy(run.text) > least
    done = [int(n) for n in re.findall(r"worker:\d \| (\d+) of the steps in", run.text)]
    # A worker reads the count before its own step adds to it.
    assert len(done) == 2 and steps <= sum(done) <= steps + 4
    for worker in ("worker:0", "worker:1"):
        assert re.search(rf"{worker} \| step +{steps}/{steps} .* ms a step", run.text)
    assert f"worker:0 | the partitioned graph: {picture}" in run.text
    assert_is_picture(
        picture, *(f"/job:{task}/replica:0/task:{i}" for task, i in (("ps", 0), ("ps", 1), ("worker", 0)))
    )
    assert processes_with(str(picture)) == {}


def test_one_graph_over_three_servers_trains_and_ends_them(small_mnist):
    hosts = ",".join(f"{LOOPBACK}:{port}" for port in free_ports(3))
    with running(
        EXAMPLES / "mnist_softmax_distributed.py", "--hosts", hosts, "--steps", 60, "--data", small_mnist
    ) as run:
        assert run.end() == 0, run.text
    assert accuracy(run.text) > 70
    assert processes_with(hosts) == {}


def test_the_three_servers_may_be_started_one_by_one(small_mnist):
    hosts = ",".join(f"{LOOPBACK}:{port}" for port in free_ports(3))
    script = (
        EXAMPLES / "mnist_softmax_distributed.py",
        "--hosts",
        hosts,
        "--steps",
        30,
        "--data",
        small_mnist,
    )
    with running(*script, 0) as first, running(*script, 1) as second, running(*script, 2) as third:
        assert first.end() == 0, first.text
        for other in (second, third):
            assert other.process.poll() is None
            other.process.terminate()
            assert other.end() == 0
    assert accuracy(first.text) > 60


@pytest.mark.slow
@pytest.mark.skipif(
    not shutil.which("make") or sys.platform != "linux", reason="needs make, and Linux's /proc"
)
def test_make_demo_trains_to_91_percent_and_leaves_nothing_running(tmp_path):
    # Under `make test` this make is a sub-make, which says where it is.
    recipe = subprocess.run(
        ["make", "-n", "--no-print-directory", "demo"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    command = shlex.split(recipe.splitlines()[-1])
    assert command[0].endswith("bin/graphrt") and "launch" in command
    with running("-m", "graphrt", *command[1:], "--picture", tmp_path / "step.html", cwd=ROOT) as run:
        run.wait_for("worker:1 | step")
        children = Path(f"/proc/{run.process.pid}/task/{run.process.pid}/children").read_text().split()
        assert len(children) == 3
        assert run.end() == 0, run.text
    assert accuracy(run.text) >= 91
    assert re.search(r"worker:\d \| \d+ of the steps in \d+\.\d s, \d+\.\d+ ms for each", run.text)
    assert_is_picture(tmp_path / "step.html", "/job:ps/replica:0/task:0", "/job:worker/replica:0/task:0")
    assert_gone(map(int, children), 10.0)
