"""gRPC and HTTP clients of the model `specdec`, and the commands `specdec chat` and `generate`.

`request` and `response` define what is sent and received; all clients share them.
"""

from specdec.clients.async_grpc_client import AsyncGrpcClient
from specdec.clients.errors import SpecdecError
from specdec.clients.grpc_client import GrpcClient
from specdec.clients.http_client import HttpClient
from specdec.clients.openai_client import OpenAiClient
from specdec.clients.request import GenerationRequest
from specdec.clients.response import AnswerEnd, Chunk, GenerationResult, collect

__all__ = [
    "AnswerEnd",
    "AsyncGrpcClient",
    "Chunk",
    "GenerationRequest",
    "GenerationResult",
    "GrpcClient",
    "HttpClient",
    "OpenAiClient",
    "SpecdecError",
    "collect",
]
