"""Helpers of the server tests: raw requests, the metrics page, changed model repositories."""

from __future__ import annotations

import re
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import grpc
import numpy as np
import urllib3
from tritonclient.grpc import service_pb2, service_pb2_grpc
from tritonclient.utils import deserialize_bytes_tensor, np_to_triton_dtype, serialize_byte_tensor

from specdec.builder.config_file import set_parameters
from specdec.launch.admin_key import ADMIN_HEADER, read_admin_key
from specdec.loadtest.kit.repository import with_drafts
from tests.waiting import PATIENCE_S, wait_for

MODEL_REPOSITORY = Path(__file__).parents[3] / "model_repository"
SLOW_DRAFT_MS = "20000"
"""Value of draft_timeout_ms in tests that count failures, so that a busy machine causes none."""

_FINAL = "triton_final_response"


class Failure(Exception):  # noqa: N818 - what the server said, not an error of the test
    """An error that the server sent, without its code (see RawClient)."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message

    @property
    def error_type(self) -> str:
        """The error type: the message up to the first colon."""
        return self.message.split(":")[0]


@dataclass(frozen=True)
class Response:
    """One raw response."""

    outputs: Mapping[str, np.ndarray]
    """Output arrays by name."""
    is_final: bool
    """Whether the server marked it as the last one."""


def tensor(*values: Any, dtype: Any = None) -> np.ndarray:
    """Return the values as an array [1, n] of `dtype`.

    The default is int32, float32, bool or object (for text), by the type of the first value.
    """
    if dtype is None:
        kinds = {bool: np.bool_, int: np.int32, float: np.float32, str: np.object_}
        dtype = kinds[type(values[0])]
    encoded = [value.encode() if isinstance(value, str) else value for value in values]
    return np.asarray([encoded], dtype=dtype)


class RawClient:
    """A client that sends any tensors, valid or not, to any model; each call has its own stream.

    Errors come as text only. The header `triton_grpc_error` would add their codes. But with it, an
    error in a stream can crash tritonserver 2.51.0 (a use after free, fixed in server PR 8708).
    """

    def __init__(self, url: str) -> None:
        self._channel = grpc.insecure_channel(url)
        self._stub = service_pb2_grpc.GRPCInferenceServiceStub(self._channel)

    def close(self) -> None:
        """Close the connection."""
        self._channel.close()

    def infer(self, model: str, inputs: Mapping[str, np.ndarray], **more: Any) -> list[Response]:
        """Return all responses; raise Failure if the server sends an error."""
        return list(self.stream(model, inputs, **more))

    def stream(
        self,
        model: str,
        inputs: Mapping[str, np.ndarray],
        *,
        outputs: tuple[str, ...] = (),
        request_id: str = "",
        parameters: Mapping[str, str] = MappingProxyType({}),
    ) -> Iterator[Response]:
        """Yield responses as they come; raise Failure if the server sends an error.

        Closing the generator cancels the request. Without `outputs`, Triton asks for all of them.
        """
        message = service_pb2.ModelInferRequest(model_name=model, id=request_id)
        message.parameters["triton_enable_empty_final_response"].bool_param = True
        for name, value in parameters.items():
            message.parameters[name].string_param = value
        for name, array in inputs.items():
            datatype = np_to_triton_dtype(array.dtype)
            message.inputs.add(name=name, datatype=datatype, shape=array.shape)
            is_text = array.dtype == np.object_
            raw = serialize_byte_tensor(array).item() if is_text and array.size else array.tobytes()
            message.raw_input_contents.append(b"" if not array.size else raw)
        for name in outputs:
            message.outputs.add(name=name)
        call = self._stub.ModelStreamInfer(iter([message]), timeout=PATIENCE_S)
        error = ""
        try:
            # Read to the end even after an error, because leaving early would cancel the request.
            for answer in call:
                error = error or answer.error_message
                if not error:
                    yield _decode(answer.infer_response)
        except grpc.RpcError as failed:
            error = error or f"{failed.code().name}: {failed.details()}"
        finally:
            call.cancel()
        if error:
            raise Failure(error)


def _decode(answer: Any) -> Response:
    outputs = {}
    for each, raw in zip(answer.outputs, answer.raw_output_contents, strict=True):
        if each.datatype == "BYTES":
            array = deserialize_bytes_tensor(raw)
        else:
            types = {"BOOL": "?", "FP32": "f4", "UINT64": "u8", "INT32": "i4", "INT64": "i8"}
            array = np.frombuffer(raw, dtype=types[each.datatype])
        outputs[each.name] = array.reshape(tuple(each.shape))
    return Response(outputs, answer.parameters[_FINAL].bool_param)


def ask_http(method: str, url: str, **more: Any) -> urllib3.BaseHTTPResponse:
    """Send one HTTP request and close its connection.

    A server that stops would wait for connections that are kept open.
    """
    with urllib3.PoolManager() as pool:
        return pool.request(method, url, **more)


def load(server: Any, model: str) -> None:
    """Load a model of a server in explicit mode, and wait until it is ready."""
    _switch(server, model, "load", "READY")


def unload(server: Any, model: str) -> None:
    """Unload a model, and wait until it is unavailable and its process has been finalized."""
    _switch(server, model, "unload", "UNAVAILABLE")


def _switch(server: Any, model: str, what: str, state: str) -> None:
    url = f"http://{server.http_url}/v2/repository"
    key = {ADMIN_HEADER: read_admin_key(server.settings.admin_key_file)}
    answer = ask_http(
        "POST", f"{url}/models/{model}/{what}", json={}, headers=key, timeout=PATIENCE_S
    )
    assert answer.status == 200, answer.data

    def states() -> set[str]:
        found = ask_http("POST", f"{url}/index", json={}, headers=key).json()
        return {each.get("state", "") for each in found if each["name"] == model}

    wait_for(lambda: states() == {state})


def metrics(
    server: Any, prefix: str = "specdec_", dropped: Collection[str] = ("model", "version")
) -> dict[tuple[str, tuple[str, ...]], float]:
    """Return {(family, sorted labels as 'name=value'): value} from the metrics page.

    Only families that begin with `prefix` are read. Labels in `dropped` are left out, and values
    that then have the same labels are added.
    """
    # The metrics port opens a moment after the server reports that it is ready.
    retries = urllib3.Retry(6, backoff_factor=0.1)
    page = urllib3.request("GET", server.metrics_url, retries=retries).data.decode()
    found: dict[tuple[str, tuple[str, ...]], float] = {}
    for line in page.splitlines():
        if not line.startswith(prefix):
            continue
        name, labels, value = re.fullmatch(r"(\w+)(?:{(.*)})? (\S+)", line).groups()
        pairs = re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', labels or "")
        kept = sorted(f"{key}={text}" for key, text in pairs if key not in dropped)
        found[name, tuple(kept)] = found.get((name, tuple(kept)), 0.0) + float(value)
    return found


def num_inflight(server: Any) -> float:
    """Return the number of requests in flight that the metrics page shows."""
    return metrics(server).get(("specdec_inflight_requests", ()), 0.0)


def cpu_seconds(server: Any) -> float:
    """Return the processor time in seconds that tritonserver and its descendants have used."""
    total, parents = 0.0, {server.pid}
    for path in sorted(Path("/proc").glob("[0-9]*/stat"), key=lambda p: int(p.parent.name)):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(path.parent.name) in parents or int(fields[1]) in parents:
            parents.add(int(path.parent.name))
            total += (int(fields[11]) + int(fields[12])) / 100
    return total


def is_idle(server: Any) -> bool:
    """Return whether no engine works: the server uses under 20 % of one core for half a second."""
    before_s, start_s = cpu_seconds(server), time.monotonic()
    time.sleep(0.5)
    return cpu_seconds(server) - before_s < 0.2 * (time.monotonic() - start_s)


def copy_repository(directory: Path, **parameters: str) -> Path:
    """Copy the model repository into `directory` with links to the weights; return the copy.

    `parameters` are set in the configuration of `specdec`.
    """
    repository = with_drafts(MODEL_REPOSITORY, directory / "model_repository", [])
    set_parameters(repository / "specdec", **parameters)
    return repository


def add_python_model(repository: Path, name: str, code: str, like: str = "draft") -> None:
    """Add a model that runs `code`, with the configuration of `like` without its parameters."""
    version = repository / name / "1"
    version.mkdir(parents=True)
    text = (MODEL_REPOSITORY / like / "config.pbtxt").read_text()
    text = re.sub(r"^parameters .*$", "", text, flags=re.MULTILINE)
    (version.parent / "config.pbtxt").write_text(text.replace(f'name: "{like}"', f'name: "{name}"'))
    (version / "model.py").write_text(code)


@contextmanager
def raw_client(server: Any) -> Iterator[RawClient]:
    """Open a raw client of the server while the block runs."""
    client = RawClient(server.grpc_url)
    try:
        yield client
    finally:
        client.close()
