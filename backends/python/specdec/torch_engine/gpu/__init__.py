"""The decoder for CUDA devices: static shapes and replayed CUDA graphs.

Most rounds read from the device only once, when all their tokens are drawn. A row's result does not
depend on the other rows of its pass. Every product runs in tiles with a fixed number of rows
(`tiles.py`), attention visits a row's keys in order (`layers.py`), and each token is drawn from its
own row (`device_sampler.py`).

Read the modules in this order: `buckets.py` (the padded shapes), `step_graph.py` (the capture of a
graph), `layers.py` (the arithmetic), `graph_decoder.py` (a pass), `chained_steps.py` (several
tokens with one read). On a CPU the same steps run over the same buffers without graphs, for tests.
"""

from specdec.torch_engine.gpu.buckets import buckets_within
from specdec.torch_engine.gpu.chained_steps import ChainedSteps
from specdec.torch_engine.gpu.device_head import DeviceHead
from specdec.torch_engine.gpu.device_noise import DeviceNoise
from specdec.torch_engine.gpu.device_sampler import DeviceSampler
from specdec.torch_engine.gpu.graph_decoder import GraphDecoder
from specdec.torch_engine.gpu.step_graph import GraphPool, new_pool

__all__ = [
    "ChainedSteps",
    "DeviceHead",
    "DeviceNoise",
    "DeviceSampler",
    "GraphDecoder",
    "GraphPool",
    "buckets_within",
    "new_pool",
]
