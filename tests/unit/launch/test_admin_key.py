"""Tests of the file with the key to the administrative APIs."""

from concurrent.futures import ThreadPoolExecutor

from specdec.launch import admin_key
from specdec.launch.admin_key import read_admin_key


def test_starts_at_the_same_time_agree_on_the_key(tmp_path):
    """The first one's key stays, for its owner alone, and no other file is left."""
    file = tmp_path / "keys" / "admin.key"

    with ThreadPoolExecutor(8) as pool:
        keys = set(pool.map(read_admin_key, [file] * 32))

    assert len(keys) == 1
    assert file.stat().st_mode & 0o777 == 0o600
    assert [each.name for each in file.parent.iterdir()] == ["admin.key"]


def test_start_that_ends_while_it_makes_the_key_leaves_none(tmp_path, monkeypatch):
    """The next start makes one."""
    file = tmp_path / "admin.key"

    class Killed(BaseException):
        """The end of the process."""

    def link(*_):
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(admin_key.os, "link", link)
        try:
            read_admin_key(file)
        except Killed:
            assert not file.exists()

    assert len(read_admin_key(file)) >= admin_key.MIN_KEY_LENGTH
