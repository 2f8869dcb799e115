"""A function of values: how many words a text has."""

import pyarrow as pa
import pyarrow.compute as pc

from tidemill_function import value


def words(texts):
    trimmed = pc.utf8_trim_whitespace(texts)
    parted = pc.list_value_length(pc.utf8_split_whitespace(trimmed))
    return pc.if_else(pc.equal(trimmed, ""), 0, parted).cast(pa.int64())


value(pa.int64(), words)
