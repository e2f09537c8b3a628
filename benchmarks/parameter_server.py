"""A parameter server of one engine: `python -m benchmarks.parameter_server ENGINE CLUSTER_JSON`.

It says 'ready', and ends when its standard input does.
"""

from __future__ import annotations

import json
import os
import sys

from benchmarks.worker import engine


def main() -> None:
    tf = engine(sys.argv[1])
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever an engine prints is not the answer
    server = tf.train.Server(tf.train.ClusterSpec(json.loads(sys.argv[2])), job_name="ps", task_index=0)
    print("ready", file=out, flush=True)
    sys.stdin.read()
    del server
    os._exit(0)  # TensorFlow's servers cannot be stopped


if __name__ == "__main__":
    main()
