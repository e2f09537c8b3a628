"""What every test stands on: the environment, a fresh default graph, no thread left behind, the oracle."""

import importlib
import importlib.util
import os
import platform
import signal
import sys
import threading
import time
from importlib import metadata

import hypothesis
import pytest

# Before anything imports TensorFlow, also in child processes: quiet, and without oneDNN's own rounding.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
# The compiler's invariant checks run after every pass in every test.
os.environ.setdefault("GRAPHRT_VERIFY", "1")

# A shell's background jobs ignore Ctrl-C, and so would the processes that tests interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

THREADS_END_WITHIN_S = 5.0

# Times vary on shared machines, so no example fails for being slow; pytest-timeout bounds the test.
hypothesis.settings.register_profile("graphrt", deadline=None, print_blob=True)
hypothesis.settings.load_profile("graphrt")


def has_tensorflow() -> bool:
    return importlib.util.find_spec("tensorflow") is not None


def pytest_report_header(config: pytest.Config) -> str:
    versions = [f"CPython {platform.python_version()}"]
    for distribution in ("numpy", "protobuf", "grpcio", "numba", "tensorflow-cpu"):
        try:
            versions.append(f"{distribution} {metadata.version(distribution)}")
        except metadata.PackageNotFoundError:
            versions.append(f"no {distribution}")
    return "with: " + ", ".join(versions)


def pytest_sessionstart(session: pytest.Session) -> None:
    """Under CI, missing TensorFlow is an error: without it every comparison with the oracle is skipped."""
    if os.environ.get("CI") != "true" or os.environ.get("GRAPHRT_TEST_WITHOUT_ORACLE") == "1":
        return
    if not has_tensorflow():
        pytest.exit(
            "CI=true, but TensorFlow is not installed, so every comparison with it would be skipped. "
            "Install the extra `oracle` (CPython 3.11 to 3.13, x86-64), "
            "or set GRAPHRT_TEST_WITHOUT_ORACLE=1 to run the other tests only.",
            returncode=1,
        )


@pytest.fixture(scope="session")
def tf():
    """TensorFlow, the oracle; tests that ask for it are skipped where it is not installed."""
    return pytest.importorskip("tensorflow")


@pytest.fixture(autouse=True)
def fresh_default_graph():
    """Every test starts with an empty default graph."""
    # Tests of formats and protos never load the public namespace, and need no graph.
    graphrt = sys.modules.get("graphrt")
    if graphrt is not None and hasattr(graphrt, "reset_default_graph"):
        graphrt.reset_default_graph()


@pytest.fixture(scope="module", autouse=True)
def no_thread_left_behind():
    """A module whose tests leave a non-daemon thread fails: such a thread keeps a process from ending."""
    before = set(threading.enumerate())
    yield
    deadline = time.monotonic() + THREADS_END_WITHIN_S
    started = [t for t in threading.enumerate() if t not in before and not t.daemon]
    for thread in started:
        thread.join(max(0.0, deadline - time.monotonic()))
    left = [thread.name for thread in started if thread.is_alive()]
    if left:
        pytest.fail(f"still running {THREADS_END_WITHIN_S:.0f} s after the last test, not daemons: {left}")
