"""Tests of copies of a model repository."""

import pytest

from specdec.builder.config_file import set_parameters
from specdec.builder.errors import BuildError
from specdec.loadtest.kit.repository import add_orchestrator


def test_copied_orchestrator_has_its_own_parameters(tmp_path):
    """The copy has another name and other parameters; an unknown parameter is refused."""
    door = tmp_path / "specdec"
    door.mkdir()
    text = 'name: "specdec"\nparameters { key: "a" value { string_value: "1" } }\n'
    (door / "config.pbtxt").write_text(text)

    add_orchestrator(tmp_path, "second", a="2")

    assert (door / "config.pbtxt").read_text() == text
    expected = text.replace("specdec", "second").replace('"1"', '"2"')
    assert (tmp_path / "second" / "config.pbtxt").read_text() == expected
    with pytest.raises(BuildError, match="parameter b 0 times"):
        set_parameters(door, b="2")
