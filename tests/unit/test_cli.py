"""Tests of the command `specdec`: its subcommands and its exit statuses."""

import importlib
import subprocess
import sys

import pytest

from specdec import __version__, cli


class FakeModule:
    """A subcommand's module that records its arguments."""

    def __init__(self, outcome):
        """Take what `main` returns, or raises if it is an exception."""
        self.outcome = outcome
        self.argv = None

    def main(self, argv):
        """Keep the arguments; return or raise the outcome."""
        self.argv = argv
        if isinstance(self.outcome, BaseException):
            raise self.outcome
        return self.outcome


@pytest.fixture
def replace_module(monkeypatch):
    """Return a function that makes every subcommand a FakeModule with the given outcome."""

    def replace(outcome):
        module = FakeModule(outcome)
        monkeypatch.setattr(cli.importlib, "import_module", lambda name: module)
        return module

    return replace


def test_help_lists_every_command(capsys):
    """--help names every command with its summary and exits 0."""
    status = cli.main(["--help"])

    assert status == 0
    help_text = capsys.readouterr().out
    for name, command in cli.COMMANDS.items():
        assert f"{name} " in help_text
        assert command.summary in help_text


@pytest.mark.parametrize("argv", [["nonsense"], [""], []])
def test_unknown_command_exits_2(argv, capsys):
    """A command that does not exist exits 2 and names the existing ones, only on stderr."""
    status = cli.main(argv)

    captured = capsys.readouterr()
    assert status == 2
    assert not captured.out
    assert "serve" in captured.err


def test_arguments_and_status_pass_through(replace_module):
    """A subcommand gets the arguments after its name, and its status is returned."""
    module = replace_module(7)

    assert cli.main(["serve", "--http-port", "0", "--", "--id=x"]) == 7
    assert module.argv == ["--http-port", "0", "--", "--id=x"]


def test_ctrl_c_exits_130_without_traceback(replace_module, capsys):
    """An interruption gives status 130 and prints nothing."""
    replace_module(KeyboardInterrupt())

    assert cli.main(["load"]) == 130
    assert capsys.readouterr() == ("", "")


def test_missing_package_names_the_extra(monkeypatch, capsys):
    """If a subcommand needs a missing package, the message names it and the extra to install."""

    def fail(name):
        raise ModuleNotFoundError(name="locust")

    monkeypatch.setattr(cli.importlib, "import_module", fail)

    assert cli.main(["load"]) == 1
    message = capsys.readouterr().err
    assert "'locust'" in message
    assert "specdec-triton[loadtest]" in message


def test_other_missing_modules_keep_their_traceback(replace_module):
    """A module that no extra installs is a fault of the installation, which is not hidden."""
    replace_module(ModuleNotFoundError(name="specdec.loop"))

    with pytest.raises(ModuleNotFoundError):
        cli.main(["serve"])


def test_subcommands_are_imported_on_use():
    """`specdec --version` imports no subcommand, so that it is instant and needs no extras."""
    code = (
        "import sys; from specdec.cli import main; main(['--version']); "
        "sys.exit(any(m.startswith(('torch', 'specdec.builder', 'specdec.clients', "
        "'specdec.loadtest')) for m in sys.modules))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)

    assert (result.returncode, result.stdout.strip()) == (0, __version__)


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_every_command_has_help(name, capsys):
    """`specdec COMMAND --help` works for every command in the table and names it."""
    module = importlib.import_module(cli.COMMANDS[name].module)

    try:
        status = module.main(["--help"])
    except SystemExit as exit_request:
        # argparse exits after printing its help.
        status = exit_request.code

    assert status == 0
    assert f"specdec {name}" in capsys.readouterr().out


def test_module_runs_as_the_command():
    """`python -m specdec` is the same command."""
    result = subprocess.run(
        [sys.executable, "-m", "specdec", "nonsense"], capture_output=True, text=True
    )

    assert result.returncode == 2
    assert "unknown command 'nonsense'" in result.stderr
