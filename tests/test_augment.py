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


@pytest.mark.parametrize("shape", [(200, 16, 24), (200, 3, 16, 24)])
def test_changes_move_relight_and_cut_each_image_by_itself(shape):
    torch.manual_seed(0)
    x = torch.rand(1, *shape[1:]).expand(shape).contiguous()
    changed = Changes()(x)
    assert changed.shape == shape
    assert len({tuple(image.flatten().tolist()) for image in changed}) == 200
    # The patch is one level wide, at least a quarter of it inside wherever its middle lies.
    plain = changed.flatten(1) if changed.ndim == 3 else changed[:, 0].flatten(1)
    patch = (plain == plain.mode(dim=1).values[:, None]).sum(1)
    assert patch.max() == 16
    assert patch.min() >= 4
    means, spreads = changed.flatten(1).mean(1), changed.flatten(1).std(1)
    assert 0.3 < means.min() / x.mean() < 0.75
    assert 1.25 < means.max() / x.mean() < 1.5
    assert spreads.max() / spreads.min() > 1.5


def test_images_are_mirrored_only_where_that_is_allowed(monkeypatch):
    torch.manual_seed(0)
    monkeypatch.setattr(augment, "PATCH", 0.0)
    ramp = torch.linspace(0, 1, 16).expand(300, 16, 16).contiguous()
    for flip, least, most in ((False, 300, 300), (True, 110, 190)):
        rising = (Changes(flip)(ramp).diff(dim=-1).sum((1, 2)) > 0).sum()
        assert least <= rising <= most


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
