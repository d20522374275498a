"""gRPC and HTTP clients of the model `specdec`, and the commands `specdec chat` and `generate`.

`request` and `response` define what is sent and received; both clients share them.
"""

from clients.errors import SpecdecError
from clients.grpc_client import GrpcClient
from clients.http_client import HttpClient
from clients.request import GenerationRequest
from clients.response import Chunk, Final, GenerationResult, collect

__all__ = [
    "Chunk",
    "Final",
    "GenerationRequest",
    "GenerationResult",
    "GrpcClient",
    "HttpClient",
    "SpecdecError",
    "collect",
]
