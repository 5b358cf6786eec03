"""What the names of columns in tables of rates mean: shares, interval ends, counts, totals, noise.

Names are compared without case, spaces and signs, first whole and then word by word. Knows no
cells and no files.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection
from typing import Literal

__all__ = [
    "CONFIDENCE",
    "binary_order",
    "interval_level",
    "is_total",
    "is_year",
    "per_how_many",
    "percent_free",
    "plain_name",
    "repeats",
    "role_of",
    "says_percent",
    "unit_of",
    "without_kind",
]

Role = Literal["share", "error", "margin", "lower", "upper", "positives", "total", "noise", "other"]

# Whole names.
_NAMES: dict[str, str] = {
    "share": "share prior set_prior proportion prop prevalence rate fraction frac percent pct "
    "percentage p ratio incidence estimate est point_estimate data_value obs_value ctr cvr "
    "probability prob share_of_positives mean_rate value anteil quote taux tasa",
    "error": "se std_error standard_error stderr std_err sem s_e",
    "margin": "moe margin_of_error margin error_margin",
    "lower": "lower low lo lcl lci lcb lb ll cilow cilo ci_l l95 q025 q2_5 p2_5 2_5 "
    "2_5_percent conf_low ci_min lower_bound untergrenze borne_inf",
    "upper": "upper high hi up ucl uci ucb ub ul cihigh ciup ci_u ci_h u95 q975 q97_5 p97_5 97_5 "
    "97_5_percent conf_high ci_max upper_bound obergrenze borne_sup",
    "noise": "noise sigma noise_sd noise_std noise_sigma count_noise noise_scale noise_stddev",
    "positives": "positives positive n_positive n_positives num_positive n_pos count counts cases "
    "events conversions clicks purchases orders deaths defaults hits successes success k "
    "numerator responders churned sold converted results complications readmissions "
    "fraud frauds infected infections failures "
    "signups sign_ups affected n_cases n_events num_cases falle cas casos",
    "total": "total totals n_total n size population pop impressions visits visitors sessions "
    "views exposures denominator denom trials sample_size num_rows rows customers patients users "
    "tested tests people respondents base births loans accounts records total_votes votes_total "
    "turnout n_tested num_tested sample n_sample total_population obs observations sends sent "
    "delivered reach registrations admissions discharges procedures list_size valid_votes "
    "votes_valid cohort_size group_size bevolkerung einwohner poblacion poblacion_total "
    "valid valid_ballots gultige gultige_stimmen exprimes suffrages_exprimes votos_validos",
    "other": "year month week day date quarter period time id code geoid fips iso rank lat lon "
    "latitude longitude note notes remark remarks source footnote footnotes flag index row "
    "objectid area zip "
    # Of elections: who might have voted, who did, and what does not count.
    "electorate electors eligible eligible_voters registered registered_voters registered_electors "
    "ballots ballots_cast votes_cast voters turnout_percent turnout_rate voter_turnout invalid "
    "invalid_votes invalid_ballots blank blank_votes spoiled spoiled_ballots spoilt rejected "
    "rejected_votes rejected_ballots null_votes overvotes undervotes wahlberechtigte wahler "
    "wahlbeteiligung stimmberechtigte stimmbeteiligung eingelegte ungultige ungultige_stimmen "
    "leere inscrits votants abstentions nuls blancs censo votos_nulos votos_blancos",
}
_ROLES = {name: role for role, names in _NAMES.items() for name in names.split()}
# Words inside names, where the whole name is not known. The first that is found counts.
_WORDS: tuple[tuple[str, frozenset[str]], ...] = (
    ("noise", frozenset({"noise", "sigma"})),
    ("error", frozenset({"se", "stderr", "sem"})),
    ("margin", frozenset({"moe", "margin"})),
    ("lower", frozenset({"lower", "low", "lcl", "lci", "lcb", "lb", "ll", "lo", "min", "inf"})),
    ("upper", frozenset({"upper", "high", "ucl", "uci", "ucb", "ub", "ul", "hi", "max", "sup"})),
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
_KINDS = {
    "units": "unit units uom measure measures measure_unit unit_of_measure unit_measure "
    "measurement_unit data_value_unit value_unit units_of_measure",
    "totals": "total totals subtotal grand_total overall sum all insgesamt gesamt summe",
    "of all": "areas batches branches campaigns cities classes countries counties departments "
    "districts groups hospitals municipalities places precincts provinces regions schools sets "
    "sites states stores streets tracts villages wards zones",
}
_KINDS_OF_NAME = frozenset({"id", "code", "name", "no", "nr", "number", "key", "label"})
_UNITS, _TOTALS, _OF_ALL = (frozenset(names.split()) for names in _KINDS.values())
_SIGNS = {"%": "percent", "\u2030": "per 1000", "\u00b1": "plus minus", "+/-": "plus minus"}
_PERCENT = frozenset({"percent", "pct", "percentage", "perc"})
_PER = {
    "1000": 1e3,
    "1k": 1e3,
    "10000": 1e4,
    "10k": 1e4,
    "100000": 1e5,
    "100k": 1e5,
    "million": 1e6,
    "mille": 1e3,
    "mill": 1e3,
}
_NEGATIVE_POSITIVE = (
    {"negative": 0, "positive": 1},
    {"negatives": 0, "positives": 1},
    {"neg": 0, "pos": 1},
    {"no": 0, "yes": 1},
    {"nein": 0, "ja": 1},
    {"non": 0, "oui": 1},
    {"against": 0, "for": 1},
    {"false": 0, "true": 1},
    {"0": 0, "1": 1},
)
# 95% CI, 95 % confidence interval
_LEVEL = re.compile(r"(?<!\d)(80|90|95|99)\s*%")
# Two-sided normal quantiles of the levels that people publish.
CONFIDENCE = {"80": 1.281552, "90": 1.644854, "95": 1.959964, "99": 2.575829}


def plain_name(name: str) -> str:
    """Return a name in lower case without accents, one underscore between its words."""
    letters = unicodedata.normalize("NFKD", name.strip())
    letters = "".join(letter for letter in letters if not unicodedata.combining(letter))
    spaced = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", letters)  # lowerCI, StdErr
    for sign, word in _SIGNS.items():
        spaced = spaced.replace(sign, f" {word} ")
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
    if per_how_many(name) is not None:
        return "share"
    if re.match(r"(n|no|number|count)_(with|positive|ill|infected|affected)", plain):
        return "positives"
    words = set(plain.split("_"))
    for role, known in _WORDS:
        if words & known:
            return role  # type: ignore[return-value]
    return None


def says_percent(name: str) -> bool:
    """Say whether a name says that its numbers are percentages; of an interval it says nothing."""
    words = set(plain_name(_LEVEL.sub(" ", name)).split("_"))
    return bool(words & _PERCENT) and per_how_many(name) is None


def percent_free(name: str) -> str:
    """Return a name without the sign or the word that says that its numbers are percentages."""
    return re.sub(r"\s*[(\[]?\s*(%|\bper ?cent\b|\bpct\b)\s*[)\]]?\s*$", "", name.strip()) or name


def repeats(name: str, columns: Collection[str]) -> bool:
    """Say whether a column states in percent what the one of that name says in counts."""
    bare = percent_free(name)
    return bare != name and bare in columns


def per_how_many(name: str) -> float | None:
    """Return 1000 for names such as ``rate_per_1000`` or ``Cases per 1,000``, else None."""
    joined = re.sub(r"(?<=\d)[, .\u2009\u202f](?=\d{3}(?!\d))", "", name)
    plain = plain_name(joined).replace("hundred_thousand", "100000").replace("thousand", "1000")
    found = re.search(r"(?:per|pour|pro|je)_?([0-9]+k?|million|mille?)(_|$)", plain)
    return _PER.get(found[1]) if found else None


def without_kind(name: str) -> str:
    """Return a plain name without words such as id, code and name: 'Hospital ID' is 'hospital'."""
    words = [word for word in plain_name(name).split("_") if word not in _KINDS_OF_NAME]
    return "_".join(words)


def is_year(name: str) -> bool:
    """Say whether a name is a year."""
    return re.fullmatch(r"(19|20)\d\d", name.strip()) is not None


def unit_of(name: str) -> bool:
    """Say whether a column's name says that it holds the unit of another."""
    return plain_name(name) in _UNITS


def is_total(name: object, column: str) -> bool:
    """Say whether a set of that name, in a column of that name, sums up the others."""
    plain = plain_name(name) if isinstance(name, str) else ""
    if plain in _TOTALS or re.match(r"(grand )?totals?\s*[:(]", str(name).strip().casefold()):
        return True
    first, _, rest = plain.partition("_")
    if first not in ("all", "total"):
        return False
    stem = plain_name(column)[:4]
    return rest in _OF_ALL or (len(stem) == 4 and rest.startswith(stem))


def interval_level(*names: str) -> str:
    """Return the confidence level that names of interval ends state, '95' if they state none."""
    for name in names:
        found = re.search(r"(?<!\d)(80|90|95|99)(?!\d)", name)
        if found:
            return found[1]
    return "95"


def binary_order(names: tuple[str, ...]) -> tuple[str, ...] | None:
    """Return the negative and the positive column if the names leave no doubt, else None."""
    plain = {name: percent_free(name).strip().lower() for name in names}
    for pair in _NEGATIVE_POSITIVE:
        if set(plain.values()) == set(pair) and len(names) == 2:
            return tuple(sorted(names, key=lambda name: pair[plain[name]]))
    return None
