"""A study as files: Markdown, CSV, one HTML page that needs nothing else, and its pictures.

Puts tables and pictures together and says what is to be seen; the numbers are worked out in
`studies.summary`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from markupsafe import Markup
from matplotlib.figure import Figure

from unmix import __version__
from unmix.files import atomic_write_text, explained_os_errors
from unmix.report.page import environment
from unmix.report.study_figures import (
    plot_against_paper,
    plot_curves,
    plot_methods,
    plot_noise_boxes,
)
from unmix.report.study_style import References
from unmix.report.study_tables import (
    chosen_epoch_table,
    error_table,
    notes_of,
    to_csv,
    to_markdown,
)
from unmix.report.svg import figure_to_svg, standalone_svg
from unmix.studies.summary import Entry, Summary

__all__ = [
    "StudyPicture",
    "pictures_markdown",
    "pictures_of_study",
    "render_study",
    "render_study_markdown",
    "write_study_report",
]

CHOSEN_NOTE = (
    "Test error in percent at the epoch with the smallest log-loss of the set index on held-out "
    "images. The number after @ is that epoch, averaged over seeds. No label was used to choose it."
)


@dataclass(frozen=True)
class StudyPicture:
    """A picture with the words around it."""

    name: str
    """Of its file, without the ending."""
    heading: str
    how: str
    drawing: Markup


@dataclass(frozen=True)
class _Plan:
    """A picture that some studies have."""

    part: str
    studies: tuple[str, ...]
    heading: str
    how: str
    draw: Callable[[Sequence[Entry], References], Figure]


# Words here hold for any runs: signs that are not always there, such as the paper's numbers, are
# for the legend.
_LOWER = "Test error: lower is better"
_BARS = "Bars are one standard deviation."
PLANS = (
    _Plan(
        "methods",
        ("comparison",),
        "Test error: further left is better",
        "Each line is a method and a number of sets.",
        plot_methods,
    ),
    _Plan(
        "errors",
        ("comparison", "curves"),
        "Test error after each epoch",
        "Lower is better, and a line that turns up again overfits. Lines are means over seeds, "
        "shades one standard deviation.",
        lambda entries, _: plot_curves(entries, value="test_error"),
    ),
    _Plan(
        "risks",
        ("comparison", "curves"),
        "Training risk after each epoch",
        "A true risk cannot be negative: where its estimate goes below zero, the network has "
        "fitted noise. The scale is linear between -1 and 1 and logarithmic outside.",
        lambda entries, _: plot_curves(entries, value="train_risk"),
    ),
    _Plan(
        "errors",
        ("set-size",),
        _LOWER,
        _BARS,
        partial(
            plot_against_paper,
            x_label="size of half of the sets, relative to the others (random: any sizes)",
        ),
    ),
    _Plan(
        "errors",
        ("set-number",),
        _LOWER,
        _BARS,
        partial(plot_against_paper, x_label="number of sets"),
    ),
    _Plan(
        "boxes",
        ("prior-noise", "noise-boxes"),
        "Test error with inaccurate set priors: lower is better",
        "Every stated prior is off by the number below, up or down. Boxes show the spread over "
        "seeds; each dot is a seed.",
        plot_noise_boxes,
    ),
)


def write_study_report(summaries: Summary | Iterable[Summary], folder: str | Path) -> list[Path]:
    """Write `<study>.md`, `<study>.csv`, `<study>.html` and `<study>-<picture>.svg` of each study.

    The same summaries give the same files, byte for byte; each is written whole or not at all.

    Parameters
    ----------
    summaries : Summary or several
    folder : path
        Created if it does not exist.

    Returns
    -------
    list of path
        The files.
    """
    folder = Path(folder)
    with explained_os_errors(folder, "write"):
        folder.mkdir(parents=True, exist_ok=True)
    texts: dict[str, str] = {}
    for summary in [summaries] if isinstance(summaries, Summary) else summaries:
        name = summary.study.name
        pictures = pictures_of_study(summary)
        texts |= {f"{picture.name}.svg": standalone_svg(picture.drawing) for picture in pictures}
        texts[f"{name}.md"] = (
            f"# {summary.study.title}\n\n{render_study_markdown(summary, pictures)}"
        )
        texts[f"{name}.csv"] = to_csv(summary)
        texts[f"{name}.html"] = render_study(summary, pictures)
    for name, text in texts.items():
        atomic_write_text(folder / name, text)
    return [folder / name for name in texts]


def render_study(summary: Summary, pictures: Iterable[StudyPicture]) -> str:
    """Return the report of a study as one HTML page."""
    return (
        environment()
        .get_template("study.html.j2")
        .render(
            version=__version__,
            study=summary.study,
            errors=error_table(summary),
            chosen=chosen_epoch_table(summary),
            chosen_note=CHOSEN_NOTE,
            notes=notes_of(summary),
            pictures=list(pictures),
        )
    )


def render_study_markdown(
    summary: Summary, pictures: Iterable[StudyPicture], images: str = ""
) -> str:
    """Return the report of a study as Markdown, without a title.

    Parameters
    ----------
    summary : Summary
    pictures : iterable of StudyPicture
        To be shown; their files are the caller's business.
    images : str
        What goes before the names of the pictures' files, such as 'images/'.
    """
    notes = "".join(f"- {note}\n" for note in notes_of(summary))
    parts = [to_markdown(error_table(summary)), notes, *pictures_markdown(pictures, images)]
    chosen = chosen_epoch_table(summary)
    if not chosen.is_empty:
        parts += ["**Epoch chosen without labels**\n", to_markdown(chosen), f"{CHOSEN_NOTE}\n"]
    return "\n".join(parts)


def pictures_markdown(pictures: Iterable[StudyPicture], images: str = "") -> list[str]:
    """Return paragraphs of Markdown that show pictures with the words around them."""
    return [
        f"**{picture.heading}.** {picture.how}\n\n"
        f"![{picture.heading}]({images}{picture.name}.svg)\n"
        for picture in pictures
    ]


def pictures_of_study(summary: Summary, parts: Iterable[str] | None = None) -> list[StudyPicture]:
    """Return the pictures of a study; none before something of it has been run.

    Parameters
    ----------
    summary : Summary
    parts : iterable of str, optional
        Names of those to draw, such as 'errors'; all if left out.
    """
    ran = {entry.dataset for entry in summary.entries if entry.runs}
    entries = [entry for entry in summary.entries if entry.dataset in ran]
    references = {
        dataset: entry.mean
        for dataset, entry in summary.supervised.items()
        if entry.mean is not None
    }
    name = summary.study.name
    wanted = None if parts is None else set(parts)
    return [
        StudyPicture(
            f"{name}-{plan.part}",
            plan.heading,
            plan.how,
            figure_to_svg(
                plan.draw(entries, references),
                label=f"{summary.study.title}: {plan.heading}",
                prefix=f"{plan.part}-",
            ),
        )
        for plan in PLANS
        if entries and name in plan.studies and (wanted is None or plan.part in wanted)
    ]
