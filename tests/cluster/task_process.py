"""A task of a cluster as a process of its own: `python task_process.py CLUSTER_JSON JOB INDEX [tensorflow]`.

It prints 'ready' once it answers, and ends when its standard input does.
"""

import json
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))


def main() -> None:
    cluster, job, index = json.loads(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    if "tensorflow" in sys.argv[4:]:
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
        import tensorflow as tf

        server = tf.distribute.Server(tf.train.ClusterSpec(cluster), job, index)
    else:
        import graphrt as tf

        server = tf.train.Server(cluster, job, index)
    print("ready", flush=True)
    sys.stdin.read()
    if hasattr(server, "stop"):
        server.stop()
    os._exit(0)


if __name__ == "__main__":
    main()
