"""The pictures of a judgement as files: SVG, PNG or PDF, on white."""

from __future__ import annotations

import warnings
from pathlib import Path

from matplotlib import rc_context

from unmix.assess.judge import Judgement
from unmix.errors import InputError
from unmix.files import atomic_path
from unmix.report.plot_style import STYLE
from unmix.report.report_figures import Drawing, pictures_of
from unmix.report.svg import figure_to_svg, quiet_fonts, standalone_svg

__all__ = ["FIGURE_FORMATS", "write_figures"]

FIGURE_FORMATS = ("svg", "png", "pdf")
DOTS_PER_INCH = 200
DATES = {"png": {"Software": None}, "pdf": {"CreationDate": None}}  # equal figures, equal bytes


def write_figures(judgement: Judgement, folder: str | Path, form: str = "svg") -> list[Path]:
    """Write every picture of a judgement to a folder and return the files.

    Parameters
    ----------
    judgement : Judgement
    folder : path
        Made if it is not there; files of the same names are replaced.
    form : 'svg', 'png' or 'pdf'
    """
    if form not in FIGURE_FORMATS:
        raise InputError(f"figures can be written as {', '.join(FIGURE_FORMATS)}; not as {form!r}")
    into = Path(folder)
    if into.exists() and not into.is_dir():
        raise InputError(f"cannot write figures to {into}: a file has that name; choose another.")
    into.mkdir(parents=True, exist_ok=True)
    drawings = [drawing for picture in pictures_of(judgement) for drawing in picture.figures]
    return [_write(drawing, into / f"{drawing.name}.{form}", form) for drawing in drawings]


def _write(drawing: Drawing, path: Path, form: str) -> Path:
    """Write one figure."""
    with atomic_path(path) as temporary:
        if form == "svg":
            svg = figure_to_svg(drawing.figure, label=drawing.label, prefix=f"{drawing.name}-")
            Path(temporary).write_text(standalone_svg(svg), encoding="utf-8")
        else:
            with rc_context(STYLE), warnings.catch_warnings():
                quiet_fonts()
                drawing.figure.savefig(
                    temporary,
                    format=form,
                    dpi=DOTS_PER_INCH,
                    facecolor="white",
                    metadata=DATES[form],
                )
    return path
