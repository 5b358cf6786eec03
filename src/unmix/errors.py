"""The exceptions of unmix. Everything else it raises is Python's or scikit-learn's own."""

__all__ = ["DivergenceError", "IdentifiabilityError", "InputError"]


class InputError(ValueError):
    """A mistake in what the user gave; the message names the set, column or file and the cure."""


class IdentifiabilityError(InputError):
    """The set priors cannot tell the classes apart, however much data there is."""


class DivergenceError(RuntimeError):
    """Training ran away: the risk is not finite or grew without bound."""
