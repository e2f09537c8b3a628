"""Who runs partitions where. Read `local.py` first, the master of one process without a message; then others.

cluster_spec.py      which tasks there are, and TF_CONFIG
server.py            a task in this process: a port, a master, a worker
master.py            the sessions of a task's clients; master_session.py compiles and registers, executable.py
                     runs, distributed_step.py is a step over several tasks, remote_task.py another task as a
                     master sees it
worker.py            registered graphs and steps of many masters; step_table.py decides which steps there are,
                     step_rendezvous.py how a tensor gets to another task
*_service.py         TensorFlow's MasterService and WorkerService in terms of these
remote.py            a client's session at a server elsewhere
"""
