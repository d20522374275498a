"""The gateway over TLS, with a certificate that the test makes."""

import http.client
import json
import socket
import ssl
import subprocess

import pytest

from tests.unit.gateway.conftest import QUESTION, greeting, running


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """Return the files of a certificate for localhost, and of its key."""
    folder = tmp_path_factory.mktemp("tls")
    file, key = folder / "certificate.pem", folder / "key.pem"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    command += ["-nodes", "-days", "2", "-subj", "/CN=localhost", "-addext"]
    command += ["subjectAltName=DNS:localhost", "-out", str(file), "-keyout", str(key)]
    subprocess.run(command, check=True, capture_output=True)
    return file, key


def test_client_that_trusts_the_certificate_is_answered(certificate):
    """A streamed chat arrives as over plain HTTP, on an encrypted connection."""
    file, key = certificate
    with running(greeting, certificate_file=file, private_key_file=key) as gateway:
        trust = ssl.create_default_context(cafile=file)
        connection = http.client.HTTPSConnection("localhost", gateway.port, context=trust)
        body = json.dumps(QUESTION | {"stream": True})
        headers = {"Content-Type": "application/json"}
        connection.request("POST", "/v1/chat/completions", body, headers)
        answer = connection.getresponse()
        text = answer.read().decode()
        assert answer.status == 200
        assert text.endswith("data: [DONE]\n\n")
        assert connection.sock.version() in {"TLSv1.2", "TLSv1.3"}
        connection.close()


def test_others_get_nothing_in_plain_text(certificate):
    """A client that does not trust the certificate refuses it; plain HTTP gets no answer."""
    file, key = certificate
    with running(greeting, certificate_file=file, private_key_file=key) as gateway:
        distrust = ssl.create_default_context()
        options = {"server_hostname": "localhost", "do_handshake_on_connect": False}
        with (
            distrust.wrap_socket(gateway.connect(), **options) as own,
            pytest.raises(ssl.SSLCertVerificationError),
        ):
            own.do_handshake()
        with gateway.connect() as plain:
            plain.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
            plain.shutdown(socket.SHUT_WR)
            assert not plain.recv(100).startswith(b"HTTP")
