"""The parts of the README that are made from results: each stands between two comments."""


def with_section(readme: str, name: str, text: str) -> str:
    """Return the README with another text between `<!-- name -->` and `<!-- end of name -->`."""
    start, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
    before, rest = readme.split(start)
    return before + start + text + end + rest.split(end)[1]
