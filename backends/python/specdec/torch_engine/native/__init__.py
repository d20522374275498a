"""The decoder in C, compiled where it runs: bfloat16 on a CPU, without PyTorch's calls.

In PyTorch the calls of a dozen small operations in each of thirty layers take as much time as the
arithmetic. Here a pass is one call. It reads each weight once for up to twelve rows, or three rows
with AVX2 but no AVX-512. It reads each cached key once for all query heads that share it.
"""

from specdec.torch_engine.native.native_decoder import (
    NativeDecoder,
    is_wanted,
    quantised_output,
)
from specdec.torch_engine.native.native_eagle3 import NativeEagle3
from specdec.torch_engine.native.pool import read_speed

__all__ = ["NativeDecoder", "NativeEagle3", "is_wanted", "quantised_output", "read_speed"]
