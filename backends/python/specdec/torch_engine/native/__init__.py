"""The decoder in C, compiled where it runs: bfloat16 on a CPU, without PyTorch's calls.

In PyTorch a model of thirty layers makes a dozen small calls in each, which take as much time as
the arithmetic. Here a pass is one call. It reads each weight once for up to twelve rows, or three
rows with AVX2 but no AVX-512. It reads each cached key once for up to twelve queries. A query is
one head of one row.
"""

from specdec.torch_engine.native.native_decoder import (
    NativeDecoder,
    obstacle,
    quantised_output,
)
from specdec.torch_engine.native.native_eagle3 import NativeEagle3
from specdec.torch_engine.native.pool import read_speed

__all__ = ["NativeDecoder", "NativeEagle3", "obstacle", "quantised_output", "read_speed"]
