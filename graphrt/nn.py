"""tf.nn: what neural networks are built of.

Each name is in the module of its topic: nn_activation, nn_conv (convolutions), nn_pool (pooling, fused
normalization), nn_cross_entropy, nn_statistics (moments, normalization), nn_embedding, nn_sampling, nn_topk,
nn_ctc.
"""

from graphrt.api.nn_activation import *  # noqa: F403
from graphrt.api.nn_conv import *  # noqa: F403
from graphrt.api.nn_cross_entropy import *  # noqa: F403
from graphrt.api.nn_ctc import *  # noqa: F403
from graphrt.api.nn_embedding import *  # noqa: F403
from graphrt.api.nn_pool import *  # noqa: F403  # noqa: F403
from graphrt.api.nn_sampling import *  # noqa: F403
from graphrt.api.nn_space_to_batch import *  # noqa: F403  # noqa: F403
from graphrt.api.nn_statistics import *  # noqa: F403
from graphrt.api.nn_topk import *  # noqa: F403
