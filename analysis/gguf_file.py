"""Reading a GGUF's description fast: long lists, such as the tokens, are stepped over."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

LONGEST_LIST = 4096


def reader(path: Path) -> Any:
    """Return a ``gguf.GGUFReader`` whose fields of more than :data:`LONGEST_LIST` items are empty.

    The package's own reader makes an object of each of the quarter of a million tokens and merges
    of a large model, which takes ten seconds and more.
    """
    from gguf import GGUFReader, GGUFValueType

    class Reader(GGUFReader):
        def _get_field_parts(self, orig_offs: int, raw_type: int) -> Any:
            if raw_type != GGUFValueType.ARRAY or self.byte_order == "S":
                return super()._get_field_parts(orig_offs, raw_type)
            data = self.data.data
            kind, count = struct.unpack_from("<IQ", data, orig_offs)
            if count <= LONGEST_LIST:
                return super()._get_field_parts(orig_offs, raw_type)
            start = end = orig_offs + struct.calcsize("<IQ")
            if kind == GGUFValueType.STRING:
                for _ in range(count):
                    end += 8 + struct.unpack_from("<Q", data, end)[0]
            else:
                end += count * self.gguf_scalar_to_np[GGUFValueType(kind)]().itemsize
            parts = [self.data[orig_offs : orig_offs + 4], self.data[orig_offs + 4 : start]]
            return end - orig_offs, parts, [], [GGUFValueType.ARRAY, GGUFValueType(kind)]

    return Reader(path)
