"""Clusters and servers, under the names that tf.train gives them."""

from graphrt.cluster.cluster_spec import ClusterSpec
from graphrt.cluster.server import Server
from graphrt.protos.cluster_pb2 import ClusterDef, JobDef
from graphrt.protos.tensorflow_server_pb2 import ServerDef

__all__ = ["ClusterDef", "ClusterSpec", "JobDef", "Server", "ServerDef"]
