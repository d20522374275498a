"""The command `specdec gateway`: its options, and what it says if it cannot start."""

import pytest

from specdec.gateway import cli


def test_options_become_settings():
    """Names for clients may differ from Triton's; every limit has an option."""
    arguments = ["--model", "a=b", "--model", "c", "--max-choices", "3", "--drain-s", "0"]
    settings = cli._settings(cli._parser().parse_args(arguments))
    assert settings.models == {"a": "b", "c": "c"}
    assert (settings.limits.max_choices, settings.limits.drain_s) == (3, 0.0)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--api-key-file", "missing"], "cannot read the API keys"),
        (["--certificate-file", "missing"], "must be given together"),
        (["--certificate-file", "m", "--private-key-file", "m"], "certificate or its key is wrong"),
        (["--workers", "0"], "workers must be at least 1"),
        (["--send-s", "0"], "send_s must be above 0"),
        (["--health-url", "host:1"], "health URL must be http://"),
        (["--metrics-url", "host:1"], "metrics URL must be http://"),
        (["--metrics-url", "http://host:x"], "metrics URL must be http://"),
        (["--address", "192.0.2.1"], "cannot listen on 192.0.2.1"),
    ],
)
def test_wrong_options_end_with_one_line(capsys, options, reason):
    """No traceback, and status 1."""
    assert cli.main(options) == 1
    error = capsys.readouterr().err
    assert error.startswith("specdec gateway: ")
    assert reason in error
    assert error.count("\n") == 1
