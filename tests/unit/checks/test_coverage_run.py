"""The command that measures coverage: which tests it leaves out, and where it saves."""

import threading

from tests.checks import coverage, model_coverage


def test_tests_left_out_exist():
    """A renamed server test would be measured again, and its limits of time might fail."""
    for name in coverage.TIMED:
        assert (coverage.ROOT / f"tests/server/{name}").exists()


def test_only_model_processes_save_again_and_again():
    """All other processes save at their end, so they need no thread for it."""
    assert model_coverage.STUB
    assert not [each for each in threading.enumerate() if "_save_again" in each.name]


def test_the_starter_is_removed(tmp_path, monkeypatch):
    """A file that would start our code in each Python process does not outlive the run."""
    monkeypatch.setattr(coverage, "STARTER", tmp_path / "starter.pth")
    with coverage._starter():
        assert str(coverage.ROOT) in coverage.STARTER.read_text()
    assert not coverage.STARTER.exists()
