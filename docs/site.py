"""MkDocs hook: README.md is the first page; other files of the repository are named, not linked."""
# ruff: noqa: INP001 - MkDocs loads it by its path

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import TYPE_CHECKING

from mkdocs.structure.files import File, Files

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)")
PICTURES = "pictures"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add README.md and the pictures that the pages show."""
    files.append(
        File.generated(config, "index.md", content=(ROOT / "README.md").read_text("utf-8"))
    )
    pages = [ROOT / "README.md", *ROOT.glob("docs/*.md")]
    shown = {
        (page.parent / target).resolve()
        for page in pages
        for mark, _, target in LINK.findall(page.read_text("utf-8"))
        if mark and not target.startswith("http")
    }
    for picture in sorted(shown):
        target = f"{PICTURES}/{picture.name}"
        files.append(File.generated(config, target, abs_src_path=str(picture)))
    return files


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """Rewrite the links to files of the repository."""
    folder = "" if page.file.src_uri == "index.md" else "docs"

    def rewritten(link: re.Match[str]) -> str:
        mark, text, target = link.groups()
        if re.match(r"\w+:|#", target):
            return link.group()
        path = posixpath.normpath(posixpath.join(folder, target))
        if mark:
            return f"![{text}]({PICTURES}/{posixpath.basename(path)})"
        if path.startswith("docs/") and path.partition("#")[0].endswith(".md"):
            return f"[{text}]({path.removeprefix('docs/')})"
        if path.partition("#")[0] == "README.md":
            return f"[{text}](index.md)"
        return text if path in text or text.startswith("`") else f"{text} (`{path}`)"

    return LINK.sub(rewritten, markdown)
