"""Take the picture of the report that the README shows, from the worked example.

    python docs/build_report_picture.py

Needs Chromium. The picture changes with the words of the report.
"""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

DOCS = Path(__file__).resolve().parent
PICTURE = DOCS / "images" / "report.png"
SIZE = "1100,900"
MOST_BYTES = 200_000


def main() -> int:
    """Fit the model of the worked example and photograph the top of its report."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        print("Chromium is not installed; install it and run this again", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as folder:
        work, shot = Path(folder) / "story", Path(folder) / "report.png"
        run(sys.executable, DOCS.parent / "examples" / "prepare_census.py", work)
        fit = "fit customers.csv --sets occupation --priors rates.csv --drop customer -o model"
        run(sys.executable, "-m", "unmix.cli", *fit.split(), cwd=work)
        flags = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
        page = (work / "model" / "report.html").as_uri()
        run(chromium, *flags, f"--screenshot={shot}", f"--window-size={SIZE}", page)
        data = shot.read_bytes()
    if len(data) > MOST_BYTES:
        print(f"the picture has {len(data):,} bytes, more than {MOST_BYTES:,}", file=sys.stderr)
        return 1
    PICTURE.write_bytes(data)
    print(f"{PICTURE}: {len(data):,} bytes")
    return 0


def run(*command: object, cwd: Path | None = None) -> None:
    """Run a program quietly."""
    subprocess.run([str(word) for word in command], cwd=cwd, check=True, capture_output=True)


if __name__ == "__main__":
    sys.exit(main())
