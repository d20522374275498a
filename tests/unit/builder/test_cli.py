"""The command line of `specdec build`: each command loads alone."""

import pytest

from specdec.builder import cli


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_every_command_has_help(name, capsys):
    """The command's module is found, and adds its options to the parser."""
    with pytest.raises(SystemExit) as stopped:
        cli.main([name, "--help"])

    assert stopped.value.code == 0
    assert capsys.readouterr().out.startswith(f"usage: specdec build {name}")
