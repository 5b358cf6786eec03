"""The rows a classifier learns from, wherever they lie: in memory, or shuffled on disk.

Encoded as each model wants them when they are first asked for. The models are chosen by rows in
memory, all of them or a sample; the one that was chosen then sees all.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from unmix.core.sums_by_set import row_copies, set_rows
from unmix.core.transition import Transition
from unmix.data.arrow_frames import as_frame
from unmix.data.known_rows import KnownRows, remaining_shares
from unmix.data.priors import Priors
from unmix.data.sets import UnlabeledSets, held_out_rows
from unmix.data.shuffled import ShuffledSets
from unmix.errors import InputError
from unmix.learn.methods import METHODS, Method
from unmix.learn.models import MODELS, Model, model_row, refuse_engine
from unmix.learn.sets_in_parts import SetsInParts

if TYPE_CHECKING:
    from unmix.learn.checkpoint import Checkpoint
    from unmix.learn.fitted import FittedClassifier
    from unmix.learn.models import Learner

__all__ = [
    "ImageEncoder",
    "JudgedRows",
    "RowsOfModel",
    "TrainingRows",
    "as_rows",
    "check_lengths",
    "refuse_set_feature",
    "same_images",
]

Array = np.ndarray[Any, Any]
FIRST_ROWS, PREFILTER_ROWS = 8, 4_096
Sets = UnlabeledSets | ShuffledSets | SetsInParts


@dataclass(frozen=True)
class ImageEncoder:
    """Images as they are, (n, h, w) or (n, c, h, w), all of one shape."""

    row_shape: tuple[int, ...]

    @classmethod
    def fit(cls, images: Array) -> ImageEncoder:
        """Return the encoder of images like these."""
        return cls(images.shape[1:])

    @property
    def feature_names(self) -> list[str]:
        """Pixels have no names."""
        return []

    @property
    def categorical(self) -> list[int]:
        """No pixel is a category."""
        return []

    def matrix(self, images: Array) -> Array:
        """Return images, or say that they have another shape than those of training."""
        if images.shape[1:] != self.row_shape:
            raise InputError(
                f"images have shape {images.shape[1:]}, and those of training {self.row_shape}; "
                "give images of that shape"
            )
        return images

    native = matrix

    def to_dict(self) -> dict[str, Any]:
        """Return what a saved model needs."""
        return {"images": list(self.row_shape)}


def same_images(images: Array) -> Array | None:
    """Number images so that equal ones share a number, (n,); None if no two are equal.

    Sets that were drawn from one collection overlap, and an image that is held out must not be
    trained on in another set.
    """
    codes, found = pd.factorize(np.array([hash(image.tobytes()) for image in images]))
    return codes if len(found) < len(images) else None


@dataclass(frozen=True)
class JudgedRows:
    """Rows that training does not see, and the set id of each, or a frame of them."""

    x: Any
    sets: Any
    score: Callable[[Learner], Array] | None = None
    """Returns their logits, where workers have them and `x` is empty of columns."""

    def logits(self, clf: FittedClassifier) -> Array | None:
        """Return what a classifier says of them at its base prior; None if there are none."""
        if not len(self.x):
            return None
        if self.score is not None:
            return self.score(clf.learner_)
        return clf.logits_at(self.x, clf.learner_.base_prior)

    def scored(self, clf: FittedClassifier) -> JudgedRows:
        """Return the same rows, of which workers are not asked again."""
        if self.score is None or not len(self.x):
            return self
        logits = self.score(clf.learner_)
        return replace(self, score=lambda learner: logits)


@dataclass(eq=False)
class TrainingRows:
    """Rows, their sets, and all that is known of the sets.

    Parameters
    ----------
    x : data frame, or array of images
        Rows in memory before encoding.
    set_index : array of integers, shape (n,), or (n, G) for several groupings
    priors : Priors
        Of all sets.
    encoder : TableEncoder or ImageEncoder
    on_disk : ShuffledSets or SetsInParts, optional
        All rows as `encoder.matrix` makes them, if `x` is only a sample of them.
    checkpoint : Checkpoint, optional
        With it a fit that was killed resumes where it stopped.
    everything : TrainingRows, optional
        These rows and those that are held out to judge by, in memory: what is fitted again when
        the judgement is made. None if nothing is held out, or all rows lie on disk only.
    """

    x: Any
    set_index: Array
    priors: Priors
    encoder: Any
    on_disk: ShuffledSets | SetsInParts | None = None
    checkpoint: Checkpoint | None = None
    everything: TrainingRows | None = None
    target: Any = None
    """The target prior; the classifier sets it."""
    labels: Array | None = None
    """The class of each row of `x` that training may know, 0 to K - 1; -1 for all others."""
    _views: dict[str, UnlabeledSets] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.labels is not None and not self.num_labels:
            raise InputError("no row has a label; name another column, or leave labels out")
        # Two classes have one logit, and one share that it is compared with.
        self.priors = replace(self.priors, set_priors=self.priors.set_priors.of_positives())

    @classmethod
    def split(
        cls,
        x: Any,
        set_index: Array,
        priors: Priors,
        encoded_by: Callable[[Any], Any],
        held_out: float,
        seed: int,
        labels: Array | None = None,
    ) -> tuple[TrainingRows, Array]:
        """Hold a share of the rows of each set out to judge by.

        Parameters
        ----------
        x, set_index, priors
            Of all rows.
        encoded_by : function
            From rows to their encoder; it sees only those to learn from.
        held_out : float
            The share; 0 for none.
        seed : int
        labels : array of integers, shape (n,), optional
            Classes that training may know; these rows are not held out.

        Returns
        -------
        TrainingRows
            The rows to learn from.
        array of bool, shape (n,)
            Which rows are held out.
        """
        if not held_out:
            rows = cls(x, set_index, priors, encoded_by(x), labels=labels)
            return rows, np.zeros(len(x), dtype=bool)
        rng = np.random.default_rng([seed, 7])
        source = None if isinstance(x, pd.DataFrame) else same_images(x)
        out = held_out_rows(set_index, held_out, rng, source)
        if labels is not None:
            out &= labels < 0
        encoder, everything = encoded_by(x[~out]), None
        if out.any():
            everything = cls(x, set_index, priors, encoder, labels=labels)
        known = None if labels is None else labels[~out]
        kept = cls(x[~out], set_index[~out], priors, encoder, everything=everything, labels=known)
        return kept, out

    @property
    def num_rows(self) -> int:
        """All rows, not only those in memory."""
        return len(self.x) if self.on_disk is None else len(self.on_disk)

    @cached_property
    def set_sizes(self) -> Array:
        """All rows of each set (m,)."""
        if self.on_disk is not None:
            return self.on_disk.set_sizes
        return set_rows(self.set_index, len(self.priors))

    @property
    def images(self) -> bool:
        """Whether rows are images, and not rows of a table."""
        return not isinstance(self.x, pd.DataFrame)

    @cached_property
    def transition(self) -> Transition:
        """What all rows and their sets define."""
        return Transition(self.priors.set_priors, self.set_sizes, self.target)

    def refuse_set_features(self, names: Sequence[Hashable]) -> None:
        """Refuse a column of `x` that names the set; names of the columns of sets, if known."""
        if self.images:
            return
        columns = self.set_index[:, None] if self.set_index.ndim == 1 else self.set_index
        names = [*names, *[None] * (columns.shape[1] - len(names))]  # rows may know their sets
        for name, column in zip(names, columns.T, strict=True):
            refuse_set_feature(self.x, name, pd.factorize(column)[0])

    @property
    def spread(self) -> Any:
        """Who makes fits that depend on nothing else, beside this process: an engine's workers."""
        parts = self.on_disk.parts if isinstance(self.on_disk, SetsInParts) else None
        return getattr(parts, "spread", None)

    def refuse_parts(self, model: Any, method: str) -> None:
        """Refuse what rows that lie with workers of an engine cannot teach.

        Before anything is chosen, which takes long; a model or method 'auto' is none yet.
        """
        if not isinstance(self.on_disk, SetsInParts):
            return
        refuse_engine(model)
        if method in METHODS:
            row = model_row(model if model in MODELS else next(iter(MODELS)))
            self._refuse_parts(row, METHODS[method])

    def _refuse_parts(self, row: Model, method: Method) -> None:
        """Raise InputError if a model cannot learn by a method from rows with workers."""
        errors = self.priors.standard_errors
        if row.in_parts is not None and isinstance(self.on_disk, SetsInParts):
            sets = replace(self.on_disk, set_priors=self.priors.set_priors)
            row.in_parts(sets, method, np.zeros(len(self.priors)) if errors is None else errors)

    def sampled(self, model: Model, method: Method) -> bool:
        """Say whether a model is fitted to a sample, since the rows are too many for memory.

        How well the share of a set is known for its rows in the sample, `SharePrecision` says.
        """
        if self.on_disk is None:
            return False
        if isinstance(self.on_disk, SetsInParts):
            try:
                self._refuse_parts(model, method)
            except InputError:  # nobody asked for it: it was chosen
                return True
            return False
        whole = method.batch_by == "whole sets"
        return model.in_memory or (model.whole_sets_in_memory and whole)

    def in_memory(self, model: Model) -> UnlabeledSets:
        """Return the rows in memory as a model takes them."""
        if model.view not in self._views:
            x = self.encoded(model)
            shares, ids = self.priors.set_priors, self.priors.set_ids
            source = same_images(x) if self.images else None
            sets = UnlabeledSets(x, self.set_index, shares, self.target, ids, source)
            self._views[model.view] = self._with_known_rows(sets)
        return self._views[model.view]

    def view(self, model: Model) -> RowsOfModel:
        """Return the rows in memory as a model takes them, encoded when some are asked for."""
        return RowsOfModel(self, model)

    def some_in_memory(self, model: Model, chosen: Array | slice) -> UnlabeledSets:
        """Return some rows of `in_memory`; no others are encoded if nobody asked for all yet."""
        if self.labels is not None or isinstance(chosen, slice) or model.view in self._views:
            return self.in_memory(model).rows(chosen)
        some = self.x if self.images else self.x.iloc
        x = np.asarray(getattr(self.encoder, model.view)(some[chosen]))
        shares, ids = self.priors.set_priors, self.priors.set_ids
        source = same_images(x) if self.images else None
        return UnlabeledSets(x, self.set_index[chosen], shares, self.target, ids, source)

    def encoded(self, model: Model) -> Array:
        """Return all rows of `x` as a model takes them."""
        if self.labels is None and model.view in self._views:
            return self._views[model.view].x
        return np.asarray(getattr(self.encoder, model.view)(self.x))

    @property
    def num_labels(self) -> int:
        """Rows whose class training may know."""
        return 0 if self.labels is None else int((self.labels >= 0).sum())

    def _with_known_rows(self, sets: UnlabeledSets) -> UnlabeledSets:
        """Take the rows of known class out of their sets, and lower the counts of these."""
        if self.labels is None:
            return sets
        known = self.labels >= 0
        if known.all():
            raise InputError(
                "every row has a label: leave set_priors out and pass the labels as sets"
            )
        classes = self.priors.classes or (0, 1)
        copies, index = row_copies(self.set_index)
        of_copies = self.labels[copies]
        taken = np.zeros(sets.set_priors.matrix.shape, dtype=np.int64)
        np.add.at(taken, (index[of_copies >= 0], of_copies[of_copies >= 0]), 1)
        shares = remaining_shares(sets.set_priors, taken, self.priors.set_ids, classes)
        source = None if sets.source is None else sets.source[known]
        rows = KnownRows(sets.x[known], self.labels[known], source)
        return replace(sets.rows(~known), set_priors=shares, known=rows)

    def all(self, model: Model, method: Method) -> Sets:
        """Return all rows as a model takes them; a sample if they must be in memory at once."""
        if self.on_disk is None or self.sampled(model, method):
            return self.in_memory(model)
        self._views.clear()  # from here on memory is for the rows on disk
        return replace(self.on_disk, set_priors=self.priors.set_priors, target_prior=self.target)


@dataclass(frozen=True, eq=False)
class RowsOfModel:
    """Rows of training as a model takes them: those that are asked for."""

    training: TrainingRows
    model: Model

    def rows(self, chosen: Array | slice) -> UnlabeledSets:
        """Return the chosen rows (indices or mask)."""
        return self.training.some_in_memory(self.model, chosen)


def as_rows(X: Any, validated: Callable[..., Any]) -> Any:
    """Return X as a data frame or as an array of images.

    Parameters
    ----------
    X : data frame, array or table of another library
    validated : function
        Checks X as the classifier does, with scikit-learn or without it, and returns it.
    """
    if not isinstance(X, pd.DataFrame | np.ndarray):
        X = as_frame(X)
    if isinstance(X, pd.DataFrame):
        if X.columns.has_duplicates:
            twice = X.columns[X.columns.duplicated()][0]
            raise InputError(f"column {twice!r} appears twice in X; rename or drop one")
        validated(X, skip_check_array=True)
        if len(X) == 0:
            raise InputError("X has 0 sample(s); at least one row is needed")
        return X
    if getattr(X, "ndim", 2) in (3, 4):
        return _as_images(np.asarray(X))
    array = validated(X, dtype="numeric", ensure_all_finite="allow-nan")
    return pd.DataFrame(array, columns=[f"x{i}" for i in range(array.shape[1])], copy=False)


def _as_images(images: Array) -> Array:
    """Return images as bytes or float32, or say what is wrong with them."""
    if len(images) == 0 or images.dtype.kind not in "fiub":
        raise InputError(
            f"images must be numbers, at least one of them; got {images.dtype} of shape "
            f"{images.shape}"
        )
    if not np.isfinite(images).all():
        bad = ~np.isfinite(images.reshape(len(images), -1)).all(axis=1)
        raise InputError(f"image {int(bad.argmax())} holds a value that is not finite")
    # Bytes are pixels and go to [0, 1] when they are used; other numbers stay what they are.
    return images if images.dtype == np.uint8 else images.astype(np.float32)


def refuse_set_feature(frame: pd.DataFrame, name: Hashable, set_index: Array) -> None:
    """Refuse a feature that says no more and no less than which set a row is in."""
    # All the rows of the first few sets: what is not one to one with these is not with all, and
    # only what is need be looked at in every row.
    sizes = np.bincount(set_index)
    first = np.flatnonzero(set_index <= np.searchsorted(sizes.cumsum(), PREFILTER_ROWS))
    few = first[:: -(-len(first) // PREFILTER_ROWS)]
    of_one = few[set_index[few] == np.bincount(set_index[few]).argmax()][:FIRST_ROWS]
    # Most columns vary among a few rows of one set: no other rows of them are looked at.
    some = frame.iloc[of_one].to_numpy()
    numbers = some.dtype.kind in "biuf"
    alike = (some == some[0]).all(axis=0) if numbers else np.ones(frame.shape[1], dtype=bool)
    for place, column in enumerate(frame.columns):
        same = column == name
        if not same and alike[place]:
            values = frame.iloc[:, place]
            same = (
                _one_to_one(values.iloc[of_one], set_index[of_one])
                and _one_to_one(values.iloc[few], set_index[few])
                # A column of all different values says nothing about sets of one row each.
                and len(sizes) < len(frame)
                and _one_to_one(values, set_index)
            )
        if same:
            raise InputError(
                f"column {column!r} of X names the set, so a model could learn the set and not "
                f"the class; drop it (--drop {column}), or pass allow_set_feature=True"
            )


def _one_to_one(values: pd.Series[Any], set_index: Array) -> bool:
    """Say whether each value goes with one set and each set with one value."""
    codes, found = pd.factorize(values)
    pairs = codes * (int(set_index.max()) + 1) + set_index
    as_many = len(found) == len(np.unique(set_index))
    return bool(as_many and codes.min() >= 0 and len(np.unique(pairs)) == len(found))


def check_lengths(num_rows: int, set_index: Array) -> None:
    """Refuse sets that do not go row by row with X."""
    if len(set_index) != num_rows:
        raise InputError(
            f"X has {num_rows} rows and sets has {len(set_index)}: inconsistent numbers of samples"
        )
