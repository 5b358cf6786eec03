"""Write docs/methods.md: every row of the method table with its formula and its sources.

    python docs/build_methods.py

What a method is for, what it assumes and which models learn by it is read from the tables of the
package; the formulas and sources stand here.
"""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from unmix.core.transition import Transition
from unmix.errors import InputError
from unmix.files import atomic_write_text
from unmix.learn.methods import METHODS, Method
from unmix.learn.models import MODELS, model_row
from unmix.learn.penalty_options import Penalty
from unmix.report.study_tables import markdown_table

PAGE = Path(__file__).resolve().parent / "methods.md"


@dataclass(frozen=True)
class Explained:
    """The formula of a method, words about it, and keys of `SOURCES`."""

    formula: str
    words: str
    sources: tuple[str, ...]


SOURCES = {
    "Lu 2021": "N. Lu, S. Lei, G. Niu, I. Sato, M. Sugiyama: Binary Classification from Multiple "
    "Unlabeled Datasets via Surrogate Set Classification. ICML 2021, "
    "[arXiv:2102.00678](https://arxiv.org/abs/2102.00678).",
    "Lu 2019": "N. Lu, G. Niu, A. K. Menon, M. Sugiyama: On the Minimal Supervision for Training "
    "Any Binary Classifier from Only Unlabeled Data. ICLR 2019.",
    "Lu 2020": "N. Lu, T. Zhang, G. Niu, M. Sugiyama: Mitigating Overfitting in Supervised "
    "Classification from Two Unlabeled Datasets: A Consistent Risk Correction Approach. "
    "AISTATS 2020.",
    "Menon 2015": "A. Menon, B. van Rooyen, C. S. Ong, R. Williamson: Learning from Corrupted "
    "Binary Labels via Class-Probability Estimation. ICML 2015.",
    "Scott 2020": "C. Scott, J. Zhang: Learning from Label Proportions: A Mutual Contamination "
    "Framework. NeurIPS 2020.",
    "Yu 2014": "F. X. Yu, K. Choromanski, S. Kumar, T. Jebara, S.-F. Chang: On Learning from Label "
    "Proportions. 2014, [arXiv:1402.5902](https://arxiv.org/abs/1402.5902).",
    "Tsai 2020": "K.-H. Tsai, H.-T. Lin: Learning from Label Proportions with Consistency "
    "Regularization. ACML 2020.",
    "Miyato 2018": "T. Miyato, S. Maeda, M. Koyama, S. Ishii: Virtual Adversarial Training: A "
    "Regularization Method for Supervised and Semi-Supervised Learning. IEEE TPAMI, 2018.",
    "Tarvainen 2017": "A. Tarvainen, H. Valpola: Mean Teachers are Better Role Models: "
    "Weight-averaged Consistency Targets Improve Semi-supervised Deep Learning Results. "
    "NeurIPS 2017.",
    "Sohn 2020": "K. Sohn et al.: FixMatch: Simplifying Semi-supervised Learning with Consistency "
    "and Confidence. NeurIPS 2020.",
    "Rosenman 2018": "E. Rosenman, N. Viswanathan: Using Poisson Binomial GLMs to Reveal Voter "
    "Preferences. 2018.",
    "Rosenman 2023": "E. Rosenman, C. McCartan, S. Olivella: Recalibration of Predicted "
    'Probabilities Using the "Logit Shift". Political Analysis, 2023.',
    "Daniels 1954": "H. E. Daniels: Saddlepoint Approximations in Statistics. Annals of "
    "Mathematical Statistics, 1954.",
    "Robinson 1950": "W. S. Robinson: Ecological Correlations and the Behavior of Individuals. "
    "American Sociological Review, 1950.",
}

_SSC = r"""T_j(\eta) = \rho_j \, \frac{\sum_k \theta_{jk} \eta_k / \kappa_k}
                {\sum_k p_k \eta_k / \kappa_k}"""
_PAIR = r"""R_+ = \kappa \frac{(1 - \pi_2) M_1(z) - (1 - \pi_1) M_2(z)}{\pi_1 - \pi_2}
\qquad
R_- = (1 - \kappa) \frac{\pi_1 M_2(-z) - \pi_2 M_1(-z)}{\pi_1 - \pi_2}"""
_PAIR_WORDS = (
    "$M_j(z)$ is the mean over set $j$ of the logistic loss $\\log(1 + e^{-z})$, and $\\pi_1 > "
    "\\pi_2$ are the shares of positives."
)
_MMC_WORDS = (
    "The sum is over pairs $a$ of sets whose shares are as far apart as possible, with weights "
    "$\\omega_a$ proportional to $(\\pi_1 - \\pi_2)^2$ times the harmonic mean of the set sizes."
)
_SHARE = r"\bar\eta_{jk} = \frac{1}{n_j} \sum_{i \in j} \eta_k(x_i)"
_VAT = (
    "$\\mathrm{VAT}$ is the mean of $\\mathrm{KL}(\\eta(x) \\, \\| \\, \\eta(x + r))$; $r$ is the "
    "perturbation of a given length that changes the prediction most."
)


def _with_vat(risk: str, penalty: Penalty | None) -> str:
    """Return the formula of a risk with a VAT penalty, with the weight of its row."""
    weight = "" if penalty is None or penalty.weight == 1 else f"{penalty.weight} \\, "
    return f"R_{{\\mathrm{{{risk}}}}} + {weight}\\mathrm{{VAT}}"


EXPLAINED = {
    "ssc": Explained(
        _SSC + r"\qquad R_{\mathrm{ssc}} = -\frac{1}{n} \sum_i \log T_{j(i)}(\eta(x_i))",
        "The set of a row is predicted as if it were its class: $T_j$ is the probability of set "
        "$j$ that follows from the class posterior $\\eta$. Computed in closed form, so the cost "
        "of a row does not depend on the number of sets.",
        ("Lu 2021",),
    ),
    "ssc-mse": Explained(
        r"\frac{1}{n} \sum_i \sum_j \left( T_j(\eta(x_i)) - [\, j = j(i) \,] \right)^2",
        "The same with the squared error instead of the cross-entropy.",
        ("Lu 2021",),
    ),
    "count": Explained(
        r"-\frac{1}{n} \sum_j \log P(C_j = c_j), \qquad C_j = \sum_{i \in j} Y_i, \quad "
        r"P(Y_i = 1) = \sigma(z_i)",
        "The probability of each set's count, given its rows (Poisson-binomial; with noise if "
        "the count is not exact). Small sets are summed exactly, large ones approximated by the "
        "saddlepoint. For a mere rate under label shift it equals `ssc`.",
        ("Rosenman 2018", "Daniels 1954"),
    ),
    "u2": Explained(_PAIR + r"\qquad R = R_+ + R_-", _PAIR_WORDS, ("Lu 2019",)),
    "u2-b": Explained(
        r"R_+ + R_- \quad \mathrm{with} \quad \kappa = \frac{1}{2}",
        "The balanced risk: as if half of the rows were positive where the classifier is used.",
        ("Menon 2015", "Lu 2019"),
    ),
    "u2-c": Explained(
        r"| R_+ | + | R_- |",
        "A risk cannot be negative; where an estimate is, it is turned over, which keeps networks "
        "from fitting noise.",
        ("Lu 2020",),
    ),
    "mmc-u2-b": Explained(
        r"\sum_a \omega_a \left( R_+^a + R_-^a \right) \quad \mathrm{with} \quad "
        r"\kappa = \frac{1}{2}",
        _MMC_WORDS,
        ("Scott 2020",),
    ),
    "mmc-u2": Explained(
        r"\sum_a \omega_a \left( R_+^a + R_-^a \right)",
        "The same pairs with the unbiased risk of `u2`.",
        ("Scott 2020", "Lu 2021"),
    ),
    "mmc-u2-c": Explained(
        r"\sum_a \omega_a \left( | R_+^a | + | R_-^a | \right)",
        "The same pairs with the corrected risk of `u2-c`.",
        ("Scott 2020", "Lu 2020", "Lu 2021"),
    ),
    "proportion": Explained(
        r"R_{\mathrm{proportion}} = -\frac{1}{m} \sum_j \sum_k \theta_{jk} \log \bar\eta_{jk}, "
        r"\qquad " + _SHARE,
        "The mean prediction of each set shall be its share (empirical proportion risk).",
        ("Yu 2014", "Tsai 2020"),
    ),
    "set-effects": Explained(
        r"\frac{1}{m} \sum_j \left( \frac{b_j^2}{2 T_j} + \frac{1}{2} \log T_j + \log v_j \right), "
        r"\qquad T_j = \tau^2 + \frac{1}{n_j v_j} + \frac{s_j^2}{(n_j v_j)^2}",
        "The density of the stated share where set $j$ adds $b_j \\sim N(0, \\tau^2)$ to the "
        "logits of its rows. $b_j$ solves $\\frac{1}{n_j} \\sum_i \\sigma(z_i + b_j) = \\pi_j$, "
        "$v_j$ is the mean of $\\sigma'(z_i + b_j)$, and $s_j^2$ the variance of the stated count. "
        "$\\tau$ is estimated.",
        ("Rosenman 2023", "Robinson 1950"),
    ),
    "llp-vat": Explained(_with_vat("proportion", METHODS["llp-vat"].penalty), _VAT, ("Tsai 2020",)),
    "ssc-vat": Explained(
        _with_vat("ssc", METHODS["ssc-vat"].penalty),
        "The length of the perturbation is chosen without labels; 0, which is plain `ssc` with "
        "shifted images, is one of the candidates.",
        ("Lu 2021", "Miyato 2018"),
    ),
    "ssc-consistency": Explained(
        r"R_{\mathrm{ssc}}(\tilde x) + \frac{\lambda}{n} \sum_i w_i \, \mathrm{KL} \left( "
        r"\bar\eta(x_i) \, \| \, \eta(\tilde x_i) \right), \qquad "
        r"w_i = \frac{K \max_k \bar\eta_k(x_i) - 1}{K - 1}",
        "$\\bar\\eta$ are the answers of the averaged weights on the row as it is, and $\\tilde x$ "
        "is the row changed: a grey image turned, scaled, sheared, moved and bent a little; an "
        "image in colour moved, lighter or darker, and without a patch; either mirrored if that is "
        "allowed; in a table, a row some of whose cells are those of another. $\\lambda$ grows "
        "from 0 to 1. A second network is trained by plain `ssc`, and held-out rows say which is "
        "kept.",
        ("Lu 2021", "Tarvainen 2017", "Sohn 2020"),
    ),
    "supervised": Explained(
        r"-\frac{1}{n} \sum_i \log \eta_{y_i}(x_i) + \mathrm{constant}",
        "`ssc` where every set has one class: ordinary cross-entropy. The reference with every "
        "label, not a competitor.",
        ("Lu 2021",),
    ),
}


def main() -> int:
    """Write the page."""
    atomic_write_text(PAGE, render_page(METHODS))
    return 0


def render_page(methods: Mapping[str, Method]) -> str:
    """Return the page as Markdown."""
    head = ("method", "in the paper", "sets share", "classes", "models", "sources")
    rows = [
        [
            f"[`{name}`](#{name})",
            method.title,
            method.assumption.name,
            "two" if _only_two(method) else "two or more",
            _models(method),
            "; ".join(EXPLAINED[name].sources),
        ]
        for name, method in methods.items()
    ]
    parts = [
        "# Methods, formulas, sources\n",
        "<!-- Written by docs/build_methods.py from the method table; do not edit. -->\n",
        "Every method of `unmix methods`. Which one to use: [which method when](which-method.md). "
        "How to add one: [extending](extending.md). Each formula has a literal, slow transcription "
        "in the tests, with which values and gradients are compared.\n",
        markdown_table(head, rows, words=len(head)),
        "A torch module of your own learns by what `mlp` learns by. The networks of images are "
        "`mlp` and `resnet32`; VAT needs a network.\n",
        "Notation: row $i$ with features $x_i$ lies in set $j(i)$. A model returns logits $z$; "
        "$\\eta_k(x)$ is the probability of class $k$ that follows, $\\sigma(z)$ for two classes. "
        "Set $j$ has $n_j$ of the $n$ rows, set weight $\\rho_j = n_j / n$ and shares "
        "$\\theta_{jk}$ ($\\pi_j$ for the positives of two classes). $p_k = \\sum_j \\rho_j "
        "\\theta_{jk}$ is the average share, $\\kappa_k$ the target prior: the share where the "
        "classifier is used. $m$ is the number of sets.\n",
    ]
    for name, method in methods.items():
        found = EXPLAINED[name]
        parts += [
            f"## {name}\n",
            f"{method.about[0].upper()}{method.about[1:]}. Assumes {method.assumption.name}.\n",
            f"$$\n{found.formula}\n$$\n",
            f"{found.words} Sources: {'; '.join(found.sources)}.\n",
        ]
    return "\n".join([*parts, OTHER, "## Sources\n", *(f"- {text}" for text in _sources()), ""])


OTHER = r"""## Beside the methods

**Choosing** (`gains_`). Sets are held out in turn. The score of a candidate is the log density of
the stated shares of held-out sets, $\log N(b_j; 0, T_j) - \log v_j$ under set effects and its
like under label shift; its *gain* is that minus the density which the average share alone gives,
averaged over sets, with a standard error. Of several strengths of a penalty the strongest within
one standard error of the best is taken.

**Rows of a new set** get $E_b \, \sigma(z + b)$ with $b \sim N(0, \tau^2)$; **rows of a set whose
share is known** get $\sigma(z + b_j \tau^2 / T_j)$, the shrunken offset of their set, or under
label shift $\sigma(z + \mathrm{logit} \, \pi_j - \mathrm{logit} \, \kappa)$.

**Rates of a classifier without labels**, under label shift: a rule that says "positive" says so
in set $j$ with frequency $\pi_j \, \mathrm{TPR} + (1 - \pi_j) \, \mathrm{FPR}$. Two sets with
different shares give both rates, more sets give a chi-square test of label shift with $m - 2$
degrees of freedom.

**Effective number of labels**, before training: $\sum_j n_j (\pi_j - p)^2 / (p (1 - p))$, less
what the errors of the shares take away.
"""


def _only_two(method: Method) -> bool:
    """Say whether a method refuses three classes."""
    try:
        method.risk(Transition(np.eye(3), [10, 10, 10]))
    except InputError:
        return True
    return False


def _models(method: Method) -> str:
    """Return the models for tables that learn by a method."""
    able = [name for name in MODELS if model_row(name).refuse(method) is None]
    return ", ".join(f"`{name}`" for name in able)


def _sources() -> list[str]:
    """Return the sources in the order of their names."""
    return [f"**{key}**: {SOURCES[key]}" for key in sorted(SOURCES)]


if __name__ == "__main__":
    sys.exit(main())
