"""Which extra installs a missing module."""

import pytest

from specdec.extras import advice_on


@pytest.mark.parametrize(
    ("module", "preferred", "extra"),
    [
        ("torch", "torch", "torch"),
        ("torch", "server", "server"),
        ("gguf", "torch", "server"),
        ("tritonclient.grpc", "torch", "clients"),
        ("tritonclient.grpc", "loadtest", "loadtest"),
    ],
)
def test_missing_module_is_named_with_the_extra_that_installs_it(module, preferred, extra):
    """The advice has the module and pip's command: the command's own extra, if that is enough."""
    advice = advice_on(ModuleNotFoundError(name=module), preferred)

    assert f"the module '{module.split('.')[0]}' is missing" in advice
    assert f"pip install 'specdec-triton[{extra}]'" in advice


@pytest.mark.parametrize("module", ["specdec.nothing", "transformers", None])
def test_other_modules_get_no_advice(module):
    """Our own modules and those of the base installation belong to no extra."""
    assert advice_on(ModuleNotFoundError(name=module), "server") is None
