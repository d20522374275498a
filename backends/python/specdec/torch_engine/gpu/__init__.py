"""The decoder for CUDA devices: static shapes, replayed graphs, one host read a round.

Where a row's bits come from: every product runs in tiles of one fixed number of rows
(`tiles.py`), attention walks a row's keys in order (`layers.py`), and a token is drawn from its
own row (`device_sampler.py`). What surrounds a row changes none of these.

Read in this order: `buckets.py` (which shapes there are), `step_graph.py` (how one is captured),
`layers.py` (what runs), `graph_decoder.py` (a pass), `leap.py` (several tokens without a look).
On a CPU the same steps run uncaptured over the same buffers, which is for tests.
"""

from specdec.torch_engine.gpu.buckets import buckets_within
from specdec.torch_engine.gpu.device_head import DeviceHead
from specdec.torch_engine.gpu.device_noise import DeviceNoise
from specdec.torch_engine.gpu.device_sampler import DeviceSampler
from specdec.torch_engine.gpu.graph_decoder import GraphDecoder
from specdec.torch_engine.gpu.leap import Leaper
from specdec.torch_engine.gpu.step_graph import GraphPool, new_pool

__all__ = [
    "DeviceHead",
    "DeviceNoise",
    "DeviceSampler",
    "GraphDecoder",
    "GraphPool",
    "Leaper",
    "buckets_within",
    "new_pool",
]
