"""Output directories: whole or absent, up to date or made again, readable by the server."""

import pytest

from specdec.builder import outputs


def test_output_appears_whole_or_not_at_all(tmp_path):
    """An error while writing leaves the old directory as it was, and no temporary one."""
    folder = tmp_path / "checkpoint"
    with outputs.replaced(folder, {"from": "a"}) as new:
        (new / "file").write_text("old")

    def fail():
        with outputs.replaced(folder, {"from": "b"}) as new:
            (new / "file").write_text("new")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()

    assert (folder / "file").read_text() == "old"
    assert list(tmp_path.iterdir()) == [folder]


def test_output_is_current_until_something_changes(tmp_path):
    """A directory is current only while its sources and its files are the same."""
    folder = tmp_path / "checkpoint"
    assert not outputs.is_current(folder, {"from": "a"})
    with outputs.replaced(folder, {"from": "a"}) as new:
        (new / "file").write_text("content")

    assert outputs.is_current(folder, {"from": "a"})
    assert not outputs.is_current(folder, {"from": "b"})
    (folder / "file").write_text("cut")
    assert not outputs.is_current(folder, {"from": "a"})


def test_output_is_readable_by_another_user(tmp_path):
    """The server may run as another user, so files are readable by all."""
    with outputs.replaced(tmp_path / "checkpoint", {}) as new:
        (new / "file").touch(mode=0o600)

    assert (tmp_path / "checkpoint" / "file").stat().st_mode & 0o777 == 0o644
