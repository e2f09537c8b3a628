"""`graphrt launch`: what tasks are given, what is shown of them, and that nothing of them is left."""

import json
import os
import pty
import signal
import subprocess
import sys
import threading

import pytest

from graphrt.tools import launch
from graphrt.tools.launch import environment, make_tasks
from tests.processes import DEADLINE_S, assert_gone, recorded_pids, running

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks at processes as Linux shows them")

# Every task first leaves its pid in a file and says that it is there.
PRELUDE = """
import os, signal, subprocess, sys, time
task = os.environ["GRAPHRT_JOB"] + os.environ["GRAPHRT_TASK"]
folder = os.path.dirname(os.path.abspath(__file__))
def record(name, pid):
    with open(os.path.join(folder, name + ".part"), "w") as file:
        file.write(str(pid))
    os.rename(file.name, os.path.join(folder, name + ".pid"))
record(task, os.getpid())
"""
WAIT = "\nprint('waiting', flush=True)\nsignal.pause()\n"


@pytest.fixture
def script(tmp_path):
    """Writes a script that tasks run; what is left of them fails the test."""
    file = tmp_path / "script.py"

    def write(body: str):
        file.write_text(PRELUDE + body)
        return file

    yield write
    assert_gone(recorded_pids(tmp_path).values(), 10.0)


def launched(*arguments):
    return running("-m", "graphrt", "launch", *arguments)


def finished(*arguments):
    """Exit status and lines of a run that ends by itself."""
    with launched(*arguments) as run:
        return run.end(), run.lines


def test_a_task_is_told_the_cluster_and_which_task_it_is(monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    tasks = make_tasks({"chief": 1, "ps": 0, "worker": 2})
    assert [str(t) for t in tasks] == ["chief:0", "worker:0", "worker:1"]
    made = environment(tasks[2], tasks)
    cluster = {"chief": [tasks[0].address], "worker": [tasks[1].address, tasks[2].address]}
    assert json.loads(made["TF_CONFIG"]) == {"cluster": cluster, "task": {"type": "worker", "index": 1}}
    assert json.loads(made["GRAPHRT_CLUSTER"]) == cluster
    assert (made["GRAPHRT_JOB"], made["GRAPHRT_TASK"]) == ("worker", "1")
    assert int(made["OMP_NUM_THREADS"]) == max(1, launch._cores() // 3)
    assert made["PATH"] == os.environ["PATH"]
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    assert environment(tasks[0], tasks)["OMP_NUM_THREADS"] == "7"


def test_every_task_runs_the_script_with_its_arguments_and_prints_behind_its_name(script):
    path = script("print(sys.argv[1:])\nprint('to stderr', file=sys.stderr)\n")
    status, lines = finished("--ps", 1, "--workers", 2, path, "--ps", "9", "x")
    assert status == 0
    names = ["ps:0     | ", "worker:0 | ", "worker:1 | "]
    assert sorted(lines) == sorted(n + t for n in names for t in ("['--ps', '9', 'x']", "to stderr"))


def test_a_module_is_run_as_python_runs_it(script):
    path = script("print(__name__, sys.argv[1:])")
    environment = {**os.environ, "PYTHONPATH": str(path.parent)}
    with running("-m", "graphrt", "launch", "--workers", 1, "-m", "script", "--flag", env=environment) as run:
        assert run.end() == 0
        assert run.lines == ["worker:0 | __main__ ['--flag']"]


def test_a_failing_task_ends_all_and_its_status_is_the_commands(script):
    path = script("""
if task == "worker1":
    sys.exit(3)
""" + WAIT)
    status, lines = finished("--ps", 1, "--workers", 2, path)
    assert status == 3
    assert "graphrt launch: worker:1 failed with exit status 3; stopping ps:0, worker:0" in lines


def test_a_task_that_dies_of_a_signal_ends_all(script):
    path = script("""
if task == "worker0":
    os.kill(os.getpid(), signal.SIGKILL)
""" + WAIT)
    status, lines = finished("--workers", 2, path)
    assert status == 128 + signal.SIGKILL
    assert "graphrt launch: worker:0 was ended by SIGKILL; stopping worker:1" in lines


def test_parameter_servers_that_wait_for_ever_are_stopped_after_the_workers(script):
    path = script("if task.startswith('ps'):" + WAIT.replace("\n", "\n    "))
    status, lines = finished("--ps", 2, "--workers", 1, "--linger", 0.2, path)
    assert status == 0
    assert sorted(lines) == ["ps:0     | waiting", "ps:1     | waiting"]


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_reaches_every_task_once(script, number, status):
    path = script(f"""
def stop(number, frame):
    print("got", number, flush=True)
    sys.exit(0)
signal.signal({int(number)}, stop)
""" + WAIT)
    with launched("--ps", 1, "--workers", 2, path) as run:
        run.wait_for("waiting", times=3)
        run.process.send_signal(number)
        assert run.end() == status
        assert sorted(line for line in run.lines if "got" in line) == [
            f"{name} | got {int(number)}" for name in ("ps:0    ", "worker:0", "worker:1")]


def test_a_task_that_does_not_stop_is_killed_after_the_grace(script):
    path = script("signal.signal(signal.SIGTERM, signal.SIG_IGN)" + WAIT)
    with launched("--workers", 1, "--grace", 0.2, path) as run:
        run.wait_for("waiting")
        run.process.terminate()
        assert run.end() == 143
        assert "graphrt launch: worker:0 did not stop within 0.2 s: killed" in run.lines


def test_a_second_interrupt_kills_at_once(script):
    path = script("signal.signal(signal.SIGINT, lambda *_: print('no', flush=True))\n"
                  "print('waiting', flush=True)\nwhile True: signal.pause()\n")
    with launched("--workers", 1, "--grace", 1000, path) as run:
        run.wait_for("waiting")
        run.process.send_signal(signal.SIGINT)
        run.wait_for("| no")
        run.process.send_signal(signal.SIGINT)
        assert run.end() == 130


def test_what_a_task_started_and_left_is_ended_too(script, tmp_path):
    path = script("""
child = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
record("child", child.pid)
""")
    assert finished("--workers", 1, path)[0] == 0
    assert "child" in recorded_pids(tmp_path)


def test_tasks_do_not_outlive_a_launcher_that_is_killed(script, tmp_path):
    with launched("--ps", 1, "--workers", 2, script(WAIT)) as run:
        run.wait_for("waiting", times=3)
        run.process.kill()
        assert run.end() == -signal.SIGKILL
    pids = recorded_pids(tmp_path)
    assert set(pids) == {"ps0", "worker0", "worker1"}
    assert_gone(pids.values(), 10.0)


def test_a_reader_that_goes_away_ends_the_run(script):
    path = script("""
while True:
    print("more", flush=True)
""")
    process = subprocess.Popen([sys.executable, "-m", "graphrt", "launch", "--workers", "1", str(path)],
                               stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert process.stdout.readline() == "worker:0 | more\n"
        process.stdout.close()
        assert process.wait(DEADLINE_S) == 143
    finally:
        process.kill()
        process.wait()


def test_on_a_terminal_names_are_coloured_and_tasks_may_draw(script):
    path = script("""
print(os.environ["GRAPHRT_PROGRESS"])
print("50 %", end="\\r")
""")
    ours, theirs = pty.openpty()
    process = subprocess.Popen([sys.executable, "-m", "graphrt", "launch", "--workers", "1", str(path)],
                               stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs,
                               env={**os.environ, "TERM": "xterm", "NO_COLOR": ""})
    os.close(theirs)
    data = bytearray()

    def read():
        try:
            while chunk := os.read(ours, 4096):
                data.extend(chunk)
        except OSError:  # the other end is closed
            pass

    reader = threading.Thread(target=read)
    reader.start()
    try:
        assert process.wait(DEADLINE_S) == 0
    finally:
        process.kill()
        process.wait()
        reader.join(DEADLINE_S)
        os.close(ours)
    name = b"\x1b[36mworker:0 | \x1b[0m"
    assert bytes(data) == name + b"live\r\n" + name + b"50 %\r\n" + b"\x1b[1A\r\x1b[J"


@pytest.mark.parametrize(("arguments", "said"), [
    (["--ps", "1"], "name the script (script.py or -m module) that the tasks run"),
    (["-m"], "name the script"),
    (["nowhere.py"], "there is no file nowhere.py"),
    (["--worker", "2", "x.py"], "unrecognized arguments: --worker"),
    (["--workers", "-1", __file__], "the numbers of tasks are not negative"),
    (["--workers", "0", __file__], "there is at least one task"),
    (["--ps", "1", "--workers", "0", "--serve-ps", __file__], "--serve-ps leaves nobody to run the script"),
    (["--grace", "-1", __file__], "--grace and --linger are not negative"),
])
def test_a_command_line_that_cannot_be_run_is_refused(capsys, arguments, said):
    with pytest.raises(SystemExit) as ended:
        launch.main(arguments)
    assert ended.value.code == 2
    assert said in capsys.readouterr().err


def test_plain_parameter_servers_hold_the_workers_variables(script):
    path = script("""
import graphrt as tf
from graphrt.cluster.cluster_spec import read_tf_config
cluster, job, index = read_tf_config()
with tf.train.Server(cluster, job, index) as server:
    with tf.device("/job:ps/task:0"):
        total = tf.Variable(40.0)
    with tf.device("/job:worker/task:0"):
        more = total.assign_add(2.0)
    with tf.Session(server.target) as session:
        session.run(total.initializer)
        print("total", session.run(more), flush=True)
""")
    status, lines = finished("--ps", 1, "--workers", 1, "--serve-ps", "--linger", 0, path)
    assert status == 0, lines
    assert "worker:0 | total 42.0" in lines
    served = "ps:0     | graphrt: /job:ps/task:0 serves at grpc://127.0.0.1:"
    assert any(line.startswith(served) for line in lines)
