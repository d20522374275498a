"""Parameters of a config.pbtxt: what is written is what protobuf reads, and the rest stays."""

import pytest
from google.protobuf import text_format
from hypothesis import given
from hypothesis import strategies as st
from tritonclient.grpc import model_config_pb2

from specdec.builder.config_file import (
    ConfigFile,
    parameter_line,
    parameters_of,
    set_parameters,
)
from specdec.builder.errors import BuildError
from specdec.builder.rendering.pbtxt import ModelConfig, Parameter
from tests.contract.declared import ROOT

PIECES = st.sampled_from(
    [
        "C:\\new",
        "\\d+",
        '"',
        "'",
        "\n",
        "\r\n",
        "\t",
        "#",
        "\\",
        "\\u0041",
        "\\x4",
        "{ }",
        "\0",
        "ä😀",
    ]
)
VALUES = st.text(st.characters(codec="utf-8")) | st.lists(PIECES | st.text()).map("".join)
NAMES = st.from_regex(r"[a-z][a-z_.0-9]{0,9}", fullmatch=True)

LAYOUTS = """# Comments stay: parameters { key: "one" value { string_value: "no" } }
name: "m"  # "quoted" and 'quoted'
parameters { key: "one" value { string_value: "1" } }
parameters {
  key: "two"  value: {
    string_value:
      "first, "
      'second'
  }
}
parameters [
  # The value of three.
  { key: 'three', value: { string_value: "\\\\d \\"x\\" \\n" } },
  { key: "four" value { string_value: "" } }
]
"""


def read(path):
    """Return the parameters of a file as Triton reads them."""
    config = text_format.Parse(path.read_text("utf-8"), model_config_pb2.ModelConfig())
    return {name: each.string_value for name, each in config.parameters.items()}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """Return the folder of a model, whose config.pbtxt each test writes."""
    return tmp_path_factory.mktemp("model")


@given(parameters=st.dictionaries(NAMES, VALUES, max_size=4), changed=VALUES)
def test_values_read_back_the_same(model, parameters, changed):
    """Any text survives being rendered, read and changed, and the order stays."""
    entries = [Parameter(name, value, "a comment") for name, value in parameters.items()]
    config = ModelConfig("m", "python", "The model.", [], [], 1, entries)
    (model / "config.pbtxt").write_text(config.text(), "utf-8")
    assert read(model / "config.pbtxt") == parameters
    assert list(parameters_of(model).items()) == list(parameters.items())
    for name in parameters:
        set_parameters(model, **{name: changed})
    assert read(model / "config.pbtxt") == dict.fromkeys(parameters, changed)


@given(one=VALUES, two=VALUES, three=VALUES, four=VALUES)
def test_changes_keep_comments_and_layout(model, one, two, three, four):
    """Only the values are replaced, wherever Triton allows them to be written."""
    path = model / "config.pbtxt"
    path.write_text(LAYOUTS, "utf-8")
    assert parameters_of(model) == {
        "one": "1",
        "two": "first, second",
        "three": '\\d "x" \n',
        "four": "",
    }
    set_parameters(model, one=one, two=two, three=three, four=four)
    assert read(path) == {"one": one, "two": two, "three": three, "four": four}
    set_parameters(model, one="1", two="2", three="3", four="")
    expected = LAYOUTS.replace("\"first, \"\n      'second'", '"2"')
    assert path.read_text("utf-8") == expected.replace('"\\\\d \\"x\\" \\n"', '"3"')


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "has the parameter a 0 times"),
        ('# parameters { key: "a" value { string_value: "" } }', "has the parameter a 0 times"),
        (parameter_line("a", "1") + "\n" + parameter_line("a", "2"), "has the parameter a 2 times"),
        ("name: name", "cannot be read"),
        ('parameters { key: "b # a" value { string_value: "" } }', "has the parameter a 0 times"),
    ],
)
def test_refuses_what_it_cannot_change(model, text, message):
    """A parameter that is missing, doubled or only in a comment is refused; the file stays."""
    (model / "config.pbtxt").write_text(text, "utf-8")
    with pytest.raises(BuildError, match=message):
        set_parameters(model, a="3")
    assert (model / "config.pbtxt").read_text("utf-8") == text


def test_unreadable_folder_is_named(tmp_path):
    """The message names the file."""
    with pytest.raises(BuildError, match=r"nowhere/config\.pbtxt cannot be read: "):
        parameters_of(tmp_path / "nowhere")


def test_parameters_of_the_repository_keep_their_text(tmp_path):
    """Writing the same values changes no byte of a model's file."""
    for path in (ROOT / "model_repository").glob("*/config.pbtxt"):
        copy = tmp_path / path.parent.name
        copy.mkdir()
        (copy / "config.pbtxt").write_bytes(path.read_bytes())
        set_parameters(copy, **parameters_of(copy))
        assert (copy / "config.pbtxt").read_bytes() == path.read_bytes()


def test_name_and_instances_of_shipped_models_can_be_changed():
    """Only the two lines change; a file that has such a line twice, or none, is refused."""
    for path in (ROOT / "model_repository").glob("*/config.pbtxt"):
        config = ConfigFile.read(path.parent)
        changed = config.with_name("other").with_instances(3)
        expected = config.text.replace(f'name: "{path.parent.name}"', 'name: "other"', 1)
        assert changed.text == expected.replace("group [ { count: 1", "group [ { count: 3")
        with pytest.raises(BuildError, match="2 lines"):
            config.with_statements(['name: "again"']).with_name("other")
        with pytest.raises(BuildError, match="0 lines"):
            ConfigFile(path, "").with_instances(2)


def test_items_and_statements_are_added():
    """An empty list gets its first item; statements follow the text after an empty line."""
    config = ConfigFile(ROOT, parameter_line("names", ""))
    changed = config.with_item("names", "a").with_item("names", "b").with_statements(["# End."])
    assert changed.text == parameter_line("names", "a,b") + "\n\n# End.\n"
