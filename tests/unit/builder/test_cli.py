"""The command line of `specdec build`: each command loads alone, and a missing package is named."""

import pytest

from builder import cli


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_every_command_has_help(name, capsys):
    """The command's module is found, and adds its options to the parser."""
    with pytest.raises(SystemExit) as stopped:
        cli.main([name, "--help"])

    assert stopped.value.code == 0
    assert capsys.readouterr().out.startswith(f"usage: specdec build {name}")


@pytest.mark.parametrize(
    ("module", "extra"), [("torch", "torch"), ("gguf", "server"), ("tritonclient.grpc", "clients")]
)
def test_missing_package_is_named_with_the_extra_that_installs_it(
    module, extra, monkeypatch, capsys
):
    """The command ends with status 1 and one line, wherever the import fails."""

    def fail(_):
        raise ModuleNotFoundError(name=module)

    monkeypatch.setattr(cli.Command, "load", fail)

    assert cli.main(["check", "smollm2_135m"]) == 1

    error = capsys.readouterr().err
    assert f"the module '{module.split('.')[0]}' is missing" in error
    assert f"specdec-triton[{extra}]" in error
