"""`graphrt serve`: one server of a cluster."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from graphrt.cluster.cluster_spec import ClusterSpec, read_tf_config
from graphrt.core.errors import OpError
from graphrt.tools.explain import UsageError

_EPILOG = """\
A cluster is JSON, a file of JSON, or jobs with their tasks in one line:
  --cluster '{"ps": ["localhost:2222"], "worker": ["localhost:2223", "localhost:2224"]}'
  --cluster cluster.json
  --cluster 'ps|localhost:2222,worker|localhost:2223;localhost:2224'
Without --cluster it is what TF_CONFIG says, and without that a server by itself at a free port.

Sessions reach a server by its address: tf.Session("grpc://localhost:2223"). Ctrl-C and SIGTERM stop it.
GRAPHRT_CLUSTER_TOKEN and GRAPHRT_TLS_CERT, _KEY, _CA say who may talk to it.
"""
_ALONE = {"localhost": ["localhost:0"]}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command until a signal ends it; gives the exit status."""
    asked = _parser().parse_args(arguments)
    try:
        cluster, job, index = task_of(asked)
        server = _start(cluster, job, index, asked)
    except (UsageError, OpError, ValueError, TypeError) as error:
        print(f"graphrt serve: {error}", file=sys.stderr)
        return 2
    # A pipe, for a lock that the interrupted code might hold is no place for a signal handler.
    reader, writer = os.pipe()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: os.write(writer, b"!"))
    made = server.server_def
    print(f"graphrt: /job:{made.job_name}/task:{made.task_index} serves at {server.target} "
          f"(process {os.getpid()})", flush=True)
    os.read(reader, 1)
    server.stop()
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="graphrt serve", epilog=_EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Runs one server of a cluster: it holds variables and runs the parts of graphs that are\n"
                    "placed on it, for any session of the cluster.")
    parser.add_argument("--cluster", metavar="SPEC", help="the jobs of the cluster and their addresses")
    parser.add_argument("--job", metavar="NAME", help="this server's job; not needed where there is one")
    parser.add_argument("--task", type=int, metavar="N",
                        help="its number in the job; not needed where that has one")
    parser.add_argument("--protocol", default="grpc", help="how servers talk (default %(default)s)")
    parser.add_argument("--cpus", type=int, metavar="N", help="CPU devices of the server (default 1)")
    parser.add_argument("--gpus", type=int, metavar="N", help="GPU devices of the server (default: all)")
    return parser


def task_of(asked: argparse.Namespace) -> tuple[Any, str | None, int | None]:
    """The cluster, the job and the task that the arguments or the environment name.

    Raises:
      UsageError: a cluster in none of the forms.
    """
    if asked.cluster is not None:
        return parse_cluster(asked.cluster), asked.job, asked.task
    found = read_tf_config()
    if found is not None and found.cluster:
        return (found.cluster, found.job if asked.job is None else asked.job,
                found.index if asked.task is None else asked.task)
    if asked.job is not None or asked.task is not None:
        raise UsageError("--job and --task name a task of a cluster: give --cluster, or set TF_CONFIG")
    return ClusterSpec(_ALONE), None, None


def parse_cluster(text: str) -> ClusterSpec:
    """The cluster that `--cluster` describes: JSON, a file, or 'job|host:port;host:port,job|...'.

    Raises:
      UsageError: it is none of these.
    """
    source = "--cluster"
    if not text.lstrip().startswith("{") and "|" not in text:
        try:
            source, text = text, Path(text).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or error
            raise UsageError(f"--cluster {text}: neither JSON, nor 'job|host:port', nor a file to read "
                             f"({reason})") from None
    if text.lstrip().startswith("{"):
        try:
            jobs = json.loads(text)  # whose keys are strings, also the numbers of tasks
            return ClusterSpec({job: {int(i): address for i, address in tasks.items()}
                                if isinstance(tasks, dict) else tasks for job, tasks in jobs.items()})
        except (ValueError, TypeError) as error:
            raise UsageError(f"{source} is not a cluster: {error}") from None
    found: dict[str, list[str]] = {}
    for part in text.strip().split(","):
        job, bar, addresses = part.partition("|")
        if not job or not bar or not all(":" in a for a in addresses.split(";")):
            raise UsageError(f"{source}: '{part}' is not 'job|host:port;host:port'")
        found[job] = addresses.split(";")
    return ClusterSpec(found)


def _start(cluster: ClusterSpec, job: str | None, index: int | None, asked: argparse.Namespace) -> Any:
    from graphrt.cluster.server import Server
    from graphrt.protos.config_pb2 import ConfigProto
    counts = {kind: n for kind, n in (("CPU", asked.cpus), ("GPU", asked.gpus)) if n is not None}
    if any(n < 0 for n in counts.values()) or counts.get("CPU") == 0:
        raise UsageError("--cpus is at least 1, --gpus at least 0")
    config = ConfigProto(device_count=counts) if counts else None
    return Server(cluster, job, index, asked.protocol, config)
