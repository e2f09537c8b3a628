"""Messages that are wire compatible with TensorFlow's, in the protobuf packages graphrt, graphrt.eager, ...

Import the module of the file that declares a message, named as TensorFlow's:

    from graphrt.protos import graph_pb2, master_pb2
    graph = graph_pb2.GraphDef.FromString(bytes_from_tensorflow)

Names, field numbers and types are TensorFlow's, so bytes interchange; only the package name differs, so
both sets live in one process. Enum values are attributes of their module or message: types_pb2.DT_FLOAT.
Fields that graphrt adds to a TensorFlow message take numbers from 20000 on, which TensorFlow ignores.

Importing this package loads nothing; the first *_pb2 module loads protobuf. The modules are generated
from protos/graphrt/*.proto by `make protos`.
"""
