"""Writes lock.txt: every library that `make test` installs, with the SHA-256 of its archive.

    python tests/write_lock.py

Asks pip what it would install now, for this system and this Python; nothing is installed.
"""

import json
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).parents[1]


def resolved():
    """Return what pip would install into an empty environment: (name, version, SHA-256)."""
    with tempfile.TemporaryDirectory() as place:
        venv.create(Path(place) / "venv", with_pip=True)
        python = next((Path(place) / "venv").glob("*/python*"))
        found = Path(place) / "found.json"
        words = "install --dry-run --ignore-installed --quiet --constraint constraints.txt --report"
        wanted = [str(found), "--editable", ".[test]"]
        subprocess.run([python, "-m", "pip", *words.split(), *wanted], cwd=ROOT, check=True)
        report = json.loads(found.read_text())
    for library in report["install"]:
        archive = library["download_info"].get("archive_info")
        if archive:  # not this project itself
            about = library["metadata"]
            yield about["name"], about["version"], archive["hashes"]["sha256"]


def main():
    """Write the file."""
    system = f"{sys.platform}, Python {sys.version_info.major}.{sys.version_info.minor}"
    lines = [
        f"# What `make test` was run with ({system}); written by tests/write_lock.py.",
        "# pip install --require-hashes --no-deps -r lock.txt && pip install --no-deps -e .",
    ]
    for name, version, digest in sorted(resolved(), key=lambda found: found[0].lower()):
        lines.append(f"{name}=={version} --hash=sha256:{digest}")
    (ROOT / "lock.txt").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
