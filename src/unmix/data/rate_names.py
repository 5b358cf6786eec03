"""What the names of columns in tables of rates mean: shares, interval ends, counts, totals, noise.

Names are compared without case, spaces and signs, first whole and then word by word. Knows no
cells and no files.
"""

from __future__ import annotations

import re
from typing import Literal

__all__ = [
    "CONFIDENCE",
    "binary_order",
    "interval_level",
    "per_how_many",
    "plain_name",
    "role_of",
    "says_percent",
]

Role = Literal["share", "error", "margin", "lower", "upper", "positives", "total", "noise", "other"]

# Whole names.
_NAMES: dict[str, str] = {
    "share": "share prior set_prior proportion prop prevalence rate fraction frac percent pct "
    "percentage p ratio incidence estimate est point_estimate data_value obs_value ctr cvr "
    "probability prob share_of_positives mean_rate value",
    "error": "se std_error standard_error stderr std_err sem s_e",
    "margin": "moe margin_of_error margin error_margin",
    "lower": "lower low lo lcl lci lcb lb ll cilow cilo ci_l l95 q025 q2_5 p2_5 2_5 "
    "2_5_percent conf_low ci_min lower_bound",
    "upper": "upper high hi up ucl uci ucb ub ul cihigh ciup ci_u ci_h u95 q975 q97_5 p97_5 97_5 "
    "97_5_percent conf_high ci_max upper_bound",
    "noise": "noise sigma noise_sd noise_std noise_sigma count_noise noise_scale noise_stddev",
    "positives": "positives positive n_positive n_positives num_positive n_pos count counts cases "
    "events conversions clicks purchases orders deaths defaults hits successes success k "
    "numerator responders churned sold converted fraud frauds infected infections failures "
    "signups sign_ups affected n_cases n_events num_cases",
    "total": "total totals n_total n size population pop impressions visits visitors sessions "
    "views exposures denominator denom trials sample_size num_rows rows customers patients users "
    "tested tests people respondents base births loans accounts records total_votes votes_total "
    "turnout n_tested num_tested sample n_sample total_population obs observations sends sent "
    "delivered cohort_size group_size",
    "other": "year month week day date quarter period time id code geoid fips iso rank lat lon "
    "latitude longitude note notes remark remarks source footnote footnotes flag index row "
    "objectid area zip",
}
_ROLES = {name: role for role, names in _NAMES.items() for name in names.split()}
# Words inside names, where the whole name is not known. The first that is found counts.
_WORDS: tuple[tuple[str, frozenset[str]], ...] = (
    ("noise", frozenset({"noise", "sigma"})),
    ("error", frozenset({"se", "stderr", "sem"})),
    ("margin", frozenset({"moe", "margin"})),
    ("lower", frozenset({"lower", "low", "lcl", "lci", "lcb", "lb", "ll", "lo", "min"})),
    ("upper", frozenset({"upper", "high", "ucl", "uci", "ucb", "ub", "ul", "hi", "max"})),
    ("other", frozenset({"year", "date", "id", "code", "rank", "fips", "geoid"})),
    (
        "share",
        frozenset(
            [
                "share",
                "rate",
                "proportion",
                "prevalence",
                "percent",
                "pct",
                "percentage",
                "fraction",
                "ctr",
                "cvr",
            ]
        ),
    ),
    (
        "positives",
        frozenset(
            [
                "positives",
                "positive",
                "cases",
                "conversions",
                "clicks",
                "deaths",
                "events",
                "purchases",
                "defaults",
            ]
        ),
    ),
    (
        "total",
        frozenset(
            ["total", "population", "impressions", "visits", "denominator", "tested", "respondents"]
        ),
    ),
)
_PERCENT = frozenset({"percent", "pct", "percentage", "perc"})
_PER = {
    "1000": 1e3,
    "1k": 1e3,
    "10000": 1e4,
    "10k": 1e4,
    "100000": 1e5,
    "100k": 1e5,
    "million": 1e6,
}
_NEGATIVE_POSITIVE = (
    {"negative": 0, "positive": 1},
    {"negatives": 0, "positives": 1},
    {"neg": 0, "pos": 1},
    {"no": 0, "yes": 1},
    {"false": 0, "true": 1},
    {"0": 0, "1": 1},
)
# Two-sided normal quantiles of the levels that people publish.
CONFIDENCE = {"80": 1.281552, "90": 1.644854, "95": 1.959964, "99": 2.575829}


def plain_name(name: str) -> str:
    """Return a name in lower case, with one underscore for whatever stands between its words."""
    spaced = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name.strip())  # lowerCI, StdErr
    spaced = spaced.replace("%", " percent ")
    return re.sub(r"[^0-9a-z]+", "_", spaced.casefold()).strip("_")


def role_of(name: str) -> Role | None:
    """Return what a column's name says it is, or None if it says nothing."""
    plain = plain_name(name)
    without_level = re.sub(r"(^|_)(80|90|95|99)(_?(percent|pct))?(_|$)", "_", plain).strip("_")
    for candidate in (plain, without_level, plain.replace("_", ""), without_level.replace("_", "")):
        if candidate in _ROLES:
            return _ROLES[candidate]  # type: ignore[return-value]
    for phrase in ("standard_error", "std_error", "std_err"):
        if phrase in plain:
            return "error"
    words = set(plain.split("_"))
    for role, known in _WORDS:
        if words & known:
            return role  # type: ignore[return-value]
    return None


def says_percent(name: str) -> bool:
    """Say whether a name says that its numbers are percentages."""
    return bool(set(plain_name(name).split("_")) & _PERCENT)


def per_how_many(name: str) -> float | None:
    """Return 1000 for names such as ``rate_per_1000`` or ``Cases per 1,000``, else None."""
    found = re.search(
        r"per_?([0-9_]+k?|million)(_|$)", plain_name(name).replace("per_100_000", "per_100000")
    )
    return _PER.get(found[1].replace("_", "")) if found else None


def interval_level(*names: str) -> str:
    """Return the confidence level that names of interval ends state, '95' if they state none."""
    for name in names:
        found = re.search(r"(?<!\d)(80|90|95|99)(?!\d)", name)
        if found:
            return found[1]
    return "95"


def binary_order(names: tuple[str, ...]) -> tuple[str, ...] | None:
    """Return the negative and the positive column if the names leave no doubt, else None."""
    for pair in _NEGATIVE_POSITIVE:
        if {name.strip().lower() for name in names} == set(pair) and len(names) == 2:
            return tuple(sorted(names, key=lambda name: pair[name.strip().lower()]))
    return None
