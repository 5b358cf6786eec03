"""What a package index shows: the README with links that lead somewhere outside this folder.

`home` in pyproject.toml, under [tool.hatch.metadata.hooks.custom], is where the project lives, once
it has such a place: links become absolute, and the project gets its URLs. Without it, relative
links become plain text, for an index has no files beside the page.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!https?:|#)([^)]+)\)")
PAGES = {"Documentation": "docs/index.md", "Changelog": "CHANGELOG.md"}


def readme_for_index(text: str, home: str) -> str:
    """Return the README with absolute links; without a home, with their words alone."""

    def absolute(found: re.Match[str]) -> str:
        picture, words, path = found.groups()
        if not home:
            return "" if picture else words
        return f"{picture}[{words}]({home}/{'raw' if picture else 'blob'}/main/{path})"

    return LINK.sub(absolute, text)


def urls_of(home: str) -> dict[str, str]:
    """Return the URLs of the project; none without a home."""
    if not home:
        return {}
    return {"Source": home} | {name: f"{home}/blob/main/{path}" for name, path in PAGES.items()}


class IndexMetadata(MetadataHookInterface):
    """Fills in what pyproject.toml calls dynamic."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Add the README and the URLs."""
        home = str(self.config.get("home", "")).rstrip("/")
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {
            "content-type": "text/markdown",
            "text": readme_for_index(text, home),
        }
        metadata["urls"] = urls_of(home)
