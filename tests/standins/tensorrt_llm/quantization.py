"""Names of the ways to quantize."""

from enum import Enum

from specdec.builder.tensorrt_llm.signatures import quant_algorithms

QuantAlgo = Enum("QuantAlgo", [(name, name) for name in quant_algorithms()])
