"""The flags of the Kubernetes deployment close a live server's administration without a key."""

import grpc
import pytest
from tritonclient.grpc import service_pb2, service_pb2_grpc

from specdec.builder.errors import BuildError
from specdec.builder.refresh.triton import Server
from specdec.clients import GenerationRequest, HttpClient
from specdec.launch.admin_key import ADMIN_HEADER, read_admin_key
from tests.server.support.live import ask_http
from tests.server.support.prompts import COUNT

REGION = {"key": "/stolen", "offset": 0, "byte_size": 64}
CLOSED = (
    ("POST", "repository/models/draft/load", {}),
    ("POST", "repository/models/draft/unload", {}),
    ("POST", "repository/index", {}),
    ("POST", "systemsharedmemory/region/stolen/register", REGION),
    ("GET", "systemsharedmemory/status", None),
    ("POST", "trace/setting", {"trace_rate": "1"}),
    ("POST", "logging", {"log_verbose_level": 9}),
)
"""Administrative requests (method, path, body) that can run code, read memory or fill a disk."""


@pytest.fixture
def url(doors):
    """Return the HTTP URL of a server with the flags of the deployment and a key file."""
    return f"http://{doors.http_url}"


@pytest.mark.parametrize(("method", "path", "body"), CLOSED, ids=[path for _, path, _ in CLOSED])
def test_administration_is_closed_without_a_key_file(faulty_server, method, path, body):
    """A server that got no key file refuses all administrative requests."""
    answer = ask_http(method, f"http://{faulty_server.http_url}/v2/{path}", json=body)
    assert answer.status == 403, answer.data


@pytest.mark.parametrize(("method", "path", "body"), CLOSED, ids=[path for _, path, _ in CLOSED])
def test_administration_is_refused_without_the_right_key(url, method, path, body):
    """Administrative requests without the key or with a wrong one are refused."""
    for headers in ({}, {ADMIN_HEADER: "guessed"}):
        answer = ask_http(method, f"{url}/v2/{path}", json=body, headers=headers)
        assert answer.status == 403, answer.data


def test_administration_is_open_with_the_right_key(url, doors):
    """Over HTTP and over gRPC, a request with the key from the server's file is answered."""
    key = read_admin_key(doors.settings.admin_key_file)

    answer = ask_http("POST", f"{url}/v2/repository/index", json={}, headers={ADMIN_HEADER: key})
    assert answer.status == 200, answer.data
    with grpc.insecure_channel(doors.grpc_url) as channel:
        index = service_pb2_grpc.GRPCInferenceServiceStub(channel).RepositoryIndex(
            service_pb2.RepositoryIndexRequest(),
            metadata=((f"triton-grpc-protocol-{ADMIN_HEADER}", key),),
        )

    assert {each["name"] for each in answer.json()} == {each.name for each in index.models}
    assert "specdec" in {each.name for each in index.models}


def test_administration_is_refused_over_grpc_without_the_key(doors):
    """The same requests are refused over gRPC without the key."""
    with grpc.insecure_channel(doors.grpc_url) as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        for call, message in (
            (stub.RepositoryModelLoad, service_pb2.RepositoryModelLoadRequest(model_name="draft")),
            (stub.RepositoryIndex, service_pb2.RepositoryIndexRequest()),
            (stub.SystemSharedMemoryStatus, service_pb2.SystemSharedMemoryStatusRequest()),
            (stub.TraceSetting, service_pb2.TraceSettingRequest()),
            (stub.LogSettings, service_pb2.LogSettingsRequest()),
        ):
            with pytest.raises(grpc.RpcError) as refused:
                call(message)
            assert refused.value.code() == grpc.StatusCode.UNAVAILABLE
            assert "restricted" in refused.value.details()


def test_refresh_loads_models_with_the_key(url, doors):
    """`specdec build refresh` loads a model with the key from the server's file.

    Without the key it fails and names the option `--admin-key-file`.
    """
    with pytest.raises(BuildError, match="admin-key-file"):
        Server(url).load("draft")

    Server(url, admin_key_file=doors.settings.admin_key_file).load("draft")


def test_answers_and_health_need_no_key(url):
    """Everybody who reaches the port gets answers, health and metadata."""
    with HttpClient(url, timeout_s=120.0) as client:
        assert client.generate(GenerationRequest(text_input=COUNT, max_tokens=2)).token_ids
    for path in ("health/live", "health/ready", "models/specdec/ready", "models/specdec"):
        assert ask_http("GET", f"{url}/v2/{path}").status == 200
