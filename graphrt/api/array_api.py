"""The public functions on arrays, text and sparse tensors, with TF1's signatures: `from graphrt.api.array_api
import *`.

array_creation: constants, placeholders, identities. array_shape: shapes asked for and changed.
array_selection: joined, cut and picked from. text_api: text, CSV and sparse tensors by their top-level names.
sorting: sort, argsort. printing: Print, print.
"""

from graphrt.api import array_creation, array_selection, array_shape, printing, sorting, text_api
from graphrt.api.array_creation import *  # noqa: F403
from graphrt.api.array_selection import *  # noqa: F403
from graphrt.api.array_shape import *  # noqa: F403
from graphrt.api.printing import *  # noqa: F403
from graphrt.api.sorting import *  # noqa: F403
from graphrt.api.text_api import *  # noqa: F403

__all__ = [
    *array_creation.__all__,
    *array_selection.__all__,
    *array_shape.__all__,
    *printing.__all__,
    *sorting.__all__,
    *text_api.__all__,
]
