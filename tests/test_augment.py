import numpy as np
import pytest
import torch

from unmix.errors import InputError
from unmix.learn import augment
from unmix.learn.augment import Augment, Changes


def numbered(*shape):
    return torch.arange(torch.tensor(shape).prod().item()).view(*shape)


def test_the_margin_mirrors_the_edge():
    padded = Augment(shift=2).pad(torch.tensor([[[0, 1, 2], [3, 4, 5], [6, 7, 8]]]))
    assert padded.shape == (1, 7, 7)
    assert padded[0, 2].tolist() == [2, 1, 0, 1, 2, 1, 0]
    assert padded[0, :, 2].tolist() == [6, 3, 0, 3, 6, 3, 0]


@pytest.mark.parametrize("shape", [(500, 4, 5), (500, 3, 4, 5)])
def test_every_image_is_a_window_of_its_own_padded_self_and_all_shifts_occur(shape):
    mover = Augment(shift=1)
    padded = mover.pad(numbered(*shape))
    moved = mover(padded)
    assert moved.shape == shape
    windows = padded.unfold(-2, 4, 1).unfold(-2, 5, 1)  # (n, ..., 3, 3, 4, 5)
    seen = torch.zeros(3, 3)
    for image, own in zip(moved, windows, strict=True):
        same = [
            (i, j) for i in range(3) for j in range(3) if torch.equal(image, own[..., i, j, :, :])
        ]
        assert same
        seen[same[0]] += 1
    assert seen.min() > 500 / 9 / 2


def test_flipping_exchanges_left_and_right_of_about_half_of_the_images():
    x = numbered(400, 2, 3)
    moved = Augment(flip=True)(Augment(flip=True).pad(x))
    flipped = (moved == x.flip(-1)).flatten(1).all(1)
    assert torch.equal(moved[~flipped], x[~flipped])
    assert 150 < flipped.sum() < 250


def test_the_same_seed_moves_images_in_the_same_way():
    mover = Augment(shift=2, flip=True)
    padded = mover.pad(torch.randint(0, 255, (50, 8, 8), dtype=torch.uint8))
    torch.manual_seed(1)
    first = mover(padded)
    torch.manual_seed(1)
    assert torch.equal(first, mover(padded))
    assert first.dtype == torch.uint8


def test_rows_of_a_table_cannot_be_shifted():
    with pytest.raises(InputError, match=r"only images can be shifted; rows have shape \(7,\)"):
        Augment(shift=1).pad(torch.zeros(3, 7))


def test_changes_move_relight_and_cut_each_image_in_colour_by_itself():
    shape = (200, 3, 16, 24)
    torch.manual_seed(0)
    x = torch.rand(1, *shape[1:]).expand(shape).contiguous()
    changed = Changes()(x)
    assert changed.shape == shape
    assert len({tuple(image.flatten().tolist()) for image in changed}) == 200
    # The patch is one level wide, at least a quarter of it inside wherever its middle lies.
    plain = changed[:, 0].flatten(1)
    patch = (plain == plain.mode(dim=1).values[:, None]).sum(1)
    assert patch.max() == 16
    assert patch.min() >= 4
    means, spreads = changed.flatten(1).mean(1), changed.flatten(1).std(1)
    assert 0.3 < means.min() / x.mean() < 0.75
    assert 1.25 < means.max() / x.mean() < 1.5
    assert spreads.max() / spreads.min() > 1.5


@pytest.mark.parametrize("shape", [(300,), (300, 3)])
def test_images_are_mirrored_only_where_that_is_allowed(shape, monkeypatch):
    torch.manual_seed(0)
    monkeypatch.setattr(augment, "PATCH", 0.0)
    ramp = torch.linspace(0, 1, 16).expand(*shape, 16, 16).contiguous()
    for flip, least, most in ((False, 300, 300), (True, 110, 190)):
        rising = (Changes(flip)(ramp).diff(dim=-1).flatten(1).sum(1) > 0).sum()
        assert least <= rising <= most


def literal_view(image, turn, scale, shear, moved, bends):
    """Look up each pixel, by hand: where the map takes it, between its four neighbours."""
    height, width = image.shape
    knots = np.arange(augment.KNOTS)
    seen = np.zeros((height, width))
    for i in range(height):
        for j in range(width):
            x, y = (2 * j + 1) / width - 1, (2 * i + 1) / height - 1
            wx, wy = scale[0] * x, scale[1] * y
            at = [
                np.cos(turn) * wx + (shear - np.sin(turn)) * wy + moved[0],
                np.sin(turn) * wx + np.cos(turn) * wy + moved[1],
            ]
            near = [
                np.exp(-((place * (augment.KNOTS - 1) / (size - 1) - knots) ** 2))
                for place, size in ((i, height), (j, width))
            ]
            weights = np.outer(near[0] / near[0].sum(), near[1] / near[1].sum())
            at = [a + (weights * bend).sum() for a, bend in zip(at, bends, strict=True)]
            column, row = (
                (a + 1) * size / 2 - 0.5 for a, size in zip(at, (width, height), strict=True)
            )
            for r in (int(np.floor(row)), int(np.floor(row)) + 1):
                for c in (int(np.floor(column)), int(np.floor(column)) + 1):
                    share = (1 - abs(row - r)) * (1 - abs(column - c))
                    seen[i, j] += share * image[mirror(r, height), mirror(c, width)]
    return seen


def mirror(place, size):
    """Return the pixel that a place beyond the edge is the mirror image of."""
    place %= 2 * size
    return place if place < size else 2 * size - 1 - place


def test_grey_images_are_turned_scaled_sheared_moved_and_bent_as_said():
    x = torch.rand(6, 9, 12)
    torch.manual_seed(3)
    changed = Changes()(x)
    torch.manual_seed(3)
    turn, shear, across, down = (torch.rand(4, 6) * 2 - 1).numpy()
    scales = 1 + augment.SCALED * (torch.rand(2, 6) * 2 - 1).numpy()
    bends = 2 * augment.BENT * torch.randn(6, 2, augment.KNOTS, augment.KNOTS).numpy()
    for i in range(6):
        expected = literal_view(
            x[i].numpy(),
            augment.TURNED * turn[i],
            scales[:, i],
            augment.SHEARED * shear[i],
            (2 * augment.STEP * across[i], 2 * augment.STEP * down[i]),
            bends[i],
        )
        np.testing.assert_allclose(changed[i], expected, atol=2e-5)


def test_a_grey_image_that_is_not_changed_at_all_is_itself(monkeypatch):
    for name in ("TURNED", "SCALED", "SHEARED", "STEP", "BENT"):
        monkeypatch.setattr(augment, name, 0.0)
    x = torch.rand(5, 7, 4)
    torch.testing.assert_close(Changes()(x), x)


def test_cells_of_a_table_are_exchanged_within_their_column():
    torch.manual_seed(0)
    x = torch.arange(4000.0).view(1000, 4)
    changed = Changes()(x)
    assert torch.equal(changed % 4, x % 4)  # every cell is of its own column
    assert 0.15 < (changed != x).float().mean() < 0.25


def test_changes_follow_the_seed():
    x = torch.rand(20, 3, 8, 8)
    for seed in (1, 2):
        torch.manual_seed(seed)
        first = Changes(flip=True)(x)
        torch.manual_seed(seed)
        assert torch.equal(first, Changes(flip=True)(x))
