"""Pack files into an archive in parts, each small enough for a transfer, and unpack it again.

Each member is a compressed tar archive. All members follow one another in one stream, which is
divided into parts of equal size (the last one may be smaller). `index.json` has the length and the
hash of each member.
"""

from __future__ import annotations

import hashlib
import io
import json
import lzma
import tarfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

INDEX = "index.json"


@dataclass(frozen=True, slots=True)
class Member:
    """One archive of the stream."""

    name: str
    num_bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Index:
    """The contents of the parts, and the commit at which they were packed."""

    members: tuple[Member, ...]
    parts: tuple[tuple[str, int], ...]
    """Name and bytes of each part, in the order of the stream."""
    commit: str
    """The commit that was checked out at packing, with `-dirty` if files had changed."""

    @classmethod
    def read(cls, folder: Path) -> Index:
        """Read the index in `folder`. Raises OSError if there is none."""
        raw = json.loads((folder / INDEX).read_text("utf-8"))
        members = tuple(Member(**each) for each in raw["members"])
        parts = tuple((name, num_bytes) for name, num_bytes in raw["parts"])
        return cls(members, parts, raw["commit"])

    def write(self, folder: Path) -> None:
        (folder / INDEX).write_text(json.dumps(asdict(self), indent=1) + "\n", "utf-8")

    def missing(self, folder: Path) -> list[str]:
        """Return the names of the parts that `folder` does not hold in full."""
        return [
            name
            for name, num_bytes in self.parts
            if not (folder / name).is_file() or (folder / name).stat().st_size != num_bytes
        ]


def pack(
    members: Mapping[str, Mapping[str, Path]],
    folder: Path,
    *,
    max_part_bytes: int,
    preset: int,
    commit: str,
) -> Index:
    """Pack files into parts of at most `max_part_bytes` in `folder`, and write the index.

    `members` has the files of each member by the path that they unpack to. `preset` is that of xz,
    from 0 (fast) to 9 (small). Parts of an earlier packing are deleted.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("part-*"):
        old.unlink()
    with ThreadPoolExecutor() as pool:  # Threads help here: xz releases Python's lock.
        archives = list(pool.map(lambda files: _archive(files, preset), members.values()))
    stream = b"".join(archives)
    num_parts = max(1, -(-len(stream) // max_part_bytes))
    size = -(-len(stream) // num_parts)
    parts = []
    for number in range(num_parts):
        part = stream[number * size : (number + 1) * size]
        name = f"part-{number + 1}-of-{num_parts}"
        (folder / name).write_bytes(part)
        parts.append((name, len(part)))
    known = tuple(
        Member(name, len(archive), hashlib.sha256(archive).hexdigest())
        for name, archive in zip(members, archives, strict=True)
    )
    index = Index(known, tuple(parts), commit)
    index.write(folder)
    return index


def unpack(folder: Path, into: Path) -> None:
    """Unpack every member of the parts in `folder`.

    Raises ValueError for a member that differs from what was packed, and OSError for a missing
    part.
    """
    index = Index.read(folder)
    stream = b"".join((folder / name).read_bytes() for name, _ in index.parts)
    starts = [0]
    for member in index.members:
        starts.append(starts[-1] + member.num_bytes)

    def extract(member: Member, start: int) -> None:
        archive = stream[start : start + member.num_bytes]
        if hashlib.sha256(archive).hexdigest() != member.sha256:
            raise ValueError(f"{member.name} has changed on its way; send the parts again")
        with tarfile.open(fileobj=io.BytesIO(lzma.decompress(archive))) as tar:
            tar.extractall(into, filter="data")

    with ThreadPoolExecutor() as pool:
        list(pool.map(extract, index.members, starts[:-1]))


def _archive(files: Mapping[str, Path], preset: int) -> bytes:
    """Return a compressed tar archive.

    Its bytes depend on the files' names, modes and contents only.
    """
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w", dereference=True) as tar:
        for name, path in sorted(files.items()):
            info = tar.gettarinfo(str(path), name)
            info.mtime, info.uid, info.gid, info.uname, info.gname = 0, 0, 0, "", ""
            with path.open("rb") as file:
                tar.addfile(info, file)
    # Most of the compressible bytes are x86 code; this filter makes it compress better.
    filters = [{"id": lzma.FILTER_X86}, {"id": lzma.FILTER_LZMA2, "preset": preset}]
    return lzma.compress(raw.getvalue(), filters=filters)
