"""Sphinx builds the site from the pages of this folder: make docs."""

from docutils.nodes import NodeVisitor, SkipNode, math, math_block
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx

from unmix import __version__

project = "unmix"
author = "the unmix developers"
copyright = author
version = release = __version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["site"]

# The pages are also read as they are, as Markdown.
myst_enable_extensions = ["dollarmath"]
myst_dmath_allow_space = False  # $50,000 and $60,000 are no formula
myst_dmath_allow_digits = False
myst_heading_anchors = 3
suppress_warnings = ["myst.xref_missing.file"]

nitpicky = True
# Names of other libraries, and of our own that are not public, have nowhere to lead.
nitpick_ignore_regex = [("py:.*", r"(?!unmix\.\w+$).*")]

autodoc_member_order = "bysource"
autodoc_typehints = "none"  # the docstrings have the types, with shapes
napoleon_google_docstring = False
napoleon_use_rtype = False
napoleon_use_ivar = True

html_theme = "furo"
html_title = "unmix"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_math_renderer = "mathml"
html_copy_source = html_show_sourcelink = False
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#1f5f99", "color-brand-content": "#1f5f99"},
    "dark_css_variables": {"color-brand-primary": "#7db8ea", "color-brand-content": "#7db8ea"},
}


def mathml(visitor: NodeVisitor, node: math) -> None:
    """Write a formula as MathML, which browsers draw without a script."""
    visitor.body.append(tex2mathml(node.astext()))
    raise SkipNode


def mathml_block(visitor: NodeVisitor, node: math_block) -> None:
    """Write a formula on lines of its own."""
    visitor.body.append(f'<div class="math">{tex2mathml(node.astext(), as_block=True)}</div>\n')
    raise SkipNode


def setup(app: Sphinx) -> None:
    """Register how formulas are written."""
    app.add_html_math_renderer("mathml", (mathml, None), (mathml_block, None))
