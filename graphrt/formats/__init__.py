"""Files that TensorFlow and TensorBoard read and write: bytes in, bytes out, no graphs.

Read `bundle.py` first (a checkpoint: an index and its data), then `table.py` (the sorted table that the
index is) and `records.py` (the framing of TFRecord and event files). Every parser raises DataLossError on
bytes that are not what they should be, with the file, the tensor and the offset, and never believes a
length that the file cannot hold.
"""
