"""A matplotlib figure as an <svg> element that stands inside an HTML page.

Text stays text: the browser has the fonts for every script, and the page's style sheet gives it
its colour in light and dark. Nothing refers outside the element, and equal figures give equal
bytes. This file knows nothing of what the pictures show.
"""

from __future__ import annotations

import io
import re
import warnings
from xml.etree import ElementTree

from markupsafe import Markup
from matplotlib import rc_context
from matplotlib.figure import Figure

from unmix.report.plot_style import STYLE

__all__ = ["figure_to_svg", "quiet_fonts", "standalone_svg"]

LINK = "{http://www.w3.org/1999/xlink}href"
LONG_NUMBER = re.compile(r"-?\d+\.\d{3,}")


def figure_to_svg(figure: Figure, *, label: str, prefix: str) -> Markup:
    """Draw a figure as an <svg> element.

    Parameters
    ----------
    figure : matplotlib Figure
    label : str
        What the picture shows, for people who cannot see it.
    prefix : str
        Goes before every id; another for each picture of a page.
    """
    settings = {**STYLE, "svg.fonttype": "none", "svg.hashsalt": "unmix"}
    drawn = io.StringIO()
    with rc_context(settings), warnings.catch_warnings():
        quiet_fonts()
        figure.savefig(drawn, format="svg", dpi=200, transparent=True, metadata={"Date": None})
    root = ElementTree.fromstring(drawn.getvalue())
    _simplify(root, prefix)
    del root.attrib["width"], root.attrib["height"], root.attrib["version"]
    root.attrib |= {"role": "img", "aria-label": label}
    # Built by ElementTree, which escapes text and attributes.
    return Markup(ElementTree.tostring(root, encoding="unicode"))


def quiet_fonts() -> None:
    """Say nothing of scripts that matplotlib's font lacks; a browser has fonts for them."""
    warnings.filterwarnings("ignore", message=".*missing from font", category=UserWarning)
    warnings.filterwarnings("ignore", message="Matplotlib currently does not support")


def _simplify(root: ElementTree.Element, prefix: str) -> None:
    """Leave out what a page does not need, and make ids differ between pictures."""
    for parent in root.iter():
        for child in list(parent):
            # matplotlib's style rule would hold for the whole page.
            if _local(child.tag) in ("metadata", "style"):
                parent.remove(child)
    for element in root.iter():
        element.tag = _local(element.tag)
        element.tail = None
        if element.tag != "text":
            element.text = None
        # Inside HTML neither element nor link needs a namespace.
        element.attrib = {_local(name): value for name, value in element.attrib.items()}
        _simplify_attributes(element.attrib, element.tag, prefix)


def _simplify_attributes(attributes: dict[str, str], tag: str, prefix: str) -> None:
    """Shorten the attributes of one element in place."""
    if tag == "g":
        attributes.pop("id", None)
    if "id" in attributes:
        attributes["id"] = prefix + attributes["id"]
    if attributes.get("href", "").startswith("#"):
        attributes["href"] = f"#{prefix}{attributes['href'][1:]}"
    if "href" in attributes:
        attributes["href"] = "".join(attributes["href"].split())
    if "clip-path" in attributes:
        attributes["clip-path"] = attributes["clip-path"].replace("url(#", f"url(#{prefix}")
    if attributes.get("transform", "").startswith("rotate(-0 "):
        del attributes["transform"]
    for name in ("d", "x", "y"):
        if name in attributes:
            numbers = LONG_NUMBER.sub(lambda found: f"{float(found[0]):.2f}", attributes[name])
            attributes[name] = " ".join(numbers.split())
    if tag == "text":  # the page has a font
        attributes["style"] = re.sub(r"font-family: [^;]*;? ?", "", attributes["style"])


def _local(name: str) -> str:
    """Return a name without its namespace."""
    return name.rpartition("}")[2]


def standalone_svg(drawing: str, *, scale: float = 1.25) -> str:
    """Return an <svg> element of a page as a file of its own: on white, with a font and a size.

    `scale` is in pixels per point.
    """
    found = re.search(r'viewBox="0 0 (\S+) (\S+)"', drawing)
    if found is None:
        raise ValueError("the drawing has no viewBox")
    width, height = (round(scale * float(length)) for length in found.groups())
    opening = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        'font-family="sans-serif"'
    )
    whole = str(drawing).replace("<svg", opening, 1)
    end = whole.index(">") + 1
    return f'{whole[:end]}<rect width="100%" height="100%" fill="white"/>{whole[end:]}\n'
