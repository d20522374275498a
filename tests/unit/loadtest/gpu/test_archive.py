"""Packing files into parts of limited size, and unpacking the same files from them."""

import random

import pytest

from specdec.loadtest.gpu.archive import INDEX, Index, pack, unpack
from specdec.loadtest.gpu.folders import GpuFolders
from specdec.loadtest.gpu.unpacking import receive

MAX_BYTES = 30_000


@pytest.fixture
def members(tmp_path):
    """Return two members, which together need four parts; one file is cut at a border."""
    folder = tmp_path / "files"
    folder.mkdir()
    files = {}
    for number, num_bytes in enumerate((10, 70_000, 31_000)):
        files[number] = folder / str(number)
        files[number].write_bytes(random.Random(number).randbytes(num_bytes))
    files[0].chmod(0o755)
    return {"small": {"bin/a": files[0], "b": files[1]}, "large": {"c/d": files[2]}}


@pytest.fixture
def packed(members, tmp_path):
    """Return the folder of the parts."""
    folder = tmp_path / "parts"
    pack(members, folder, max_part_bytes=MAX_BYTES, preset=0, commit="1234")
    return folder


def test_unpacking_gives_the_files_that_were_packed(members, packed, tmp_path):
    """Contents and modes are the same, so executable files stay executable."""
    unpack(packed, tmp_path / "out")

    for files in members.values():
        for name, path in files.items():
            found = tmp_path / "out" / name
            assert found.read_bytes() == path.read_bytes()
            assert found.stat().st_mode == path.stat().st_mode


def test_no_part_is_larger_than_allowed(packed):
    """There are as many parts as needed, and no more."""
    sizes = [path.stat().st_size for path in packed.glob("part-*")]

    assert len(sizes) == 4
    assert max(sizes) <= MAX_BYTES


def test_same_files_give_the_same_parts(members, packed, tmp_path):
    """A machine that has the parts already needs no new ones."""
    again = pack(members, tmp_path / "again", max_part_bytes=MAX_BYTES, preset=0, commit="1234")

    assert again == Index.read(packed)


def test_changed_byte_is_noticed(packed, tmp_path):
    """The error names the member that changed."""
    (part,) = packed.glob("part-1-*")
    raw = bytearray(part.read_bytes())
    raw[500] ^= 1
    part.write_bytes(raw)

    with pytest.raises(ValueError, match="small has changed on its way"):
        unpack(packed, tmp_path / "out")


def test_parts_may_arrive_one_by_one(packed, tmp_path):
    """Each call brings one part; earlier ones are kept, and the missing ones are returned."""
    folders = GpuFolders(tmp_path / "home")
    names = [name for name, _ in Index.read(packed).parts]
    for number, name in enumerate(names):
        arrived = tmp_path / name
        arrived.mkdir()
        for each in (name, INDEX):
            (arrived / each).write_bytes((packed / each).read_bytes())
        assert receive(arrived, folders) == names[number + 1 :]

    assert receive(tmp_path / "nothing", folders) == []
    unpack(folders.archive, tmp_path / "out")


def test_incomplete_part_counts_as_missing(packed, tmp_path):
    """A transfer may have broken off."""
    (first,) = packed.glob("part-1-*")
    first.write_bytes(first.read_bytes()[:-1])

    assert receive(packed, GpuFolders(tmp_path / "home")) == [first.name]


def test_newly_packed_parts_replace_everything(members, packed, tmp_path):
    """No file of another packing is left among them."""
    folders = GpuFolders(tmp_path / "home")
    receive(packed, folders)
    (folders.root / "left over").touch()
    pack(members, packed, max_part_bytes=MAX_BYTES, preset=0, commit="5678")

    assert receive(packed, folders) == []
    assert not (folders.root / "left over").exists()


def test_without_parts_all_are_missing(tmp_path):
    """Steps that need no parts can run nevertheless."""
    assert receive(tmp_path / "nothing", GpuFolders(tmp_path / "home")) == [INDEX]
