"""Write the table of docs/rates.md: what each file of tests/rates was understood as, or why not.

Usage: python docs/build_rates.py
"""

import json
from pathlib import Path

from unmix.data.rates_file import read_rates
from unmix.errors import InputError

HERE = Path(__file__).parent
CASES = HERE.parent / "tests" / "rates"
PAGE = HERE / "rates.md"

MARK = "<!-- From here on written by docs/build_rates.py. -->\n"


def outcome(case: dict) -> str:
    """Return what a file was understood as, or why it was refused."""
    path = CASES / case["file"]
    try:
        priors = read_rates(path, case["sets"], **case["options"])
    except InputError as error:
        return f"**refused:** {error}".replace(str(path), case["file"])
    return priors.understood.replace(f"{path}: ", "")


def page() -> str:
    """Return the page: what people wrote, and the table after the mark."""
    cases = json.loads((CASES / "cases.json").read_text(encoding="utf-8"))
    lines = [f"| `{case['file']}` | {case['about']} | {_cell(outcome(case))} |" for case in cases]
    head = "| file | what is in it | understood as, or refused for |\n| --- | --- | --- |\n"
    written = PAGE.read_text(encoding="utf-8").split(MARK)[0]
    return written + MARK + "\n" + head + "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    """Return text as it stands in a cell of a table, with no Markdown in it."""
    head = "**refused:** "
    body = text.removeprefix(head)
    for sign in "\\`*_|<>[]":
        body = body.replace(sign, f"\\{sign}")
    return (head if text.startswith(head) else "") + body


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
