import pytest
import torch

from unmix.errors import InputError
from unmix.learn.augment import Augment


def numbered(*shape):
    return torch.arange(torch.tensor(shape).prod().item()).view(*shape)


def test_the_margin_mirrors_the_edge():
    padded = Augment(shift=2).pad(torch.tensor([[[0, 1, 2], [3, 4, 5], [6, 7, 8]]]))
    assert padded.shape == (1, 7, 7)
    assert padded[0, 2].tolist() == [2, 1, 0, 1, 2, 1, 0]
    assert padded[0, :, 2].tolist() == [6, 3, 0, 3, 6, 3, 0]


@pytest.mark.parametrize("shape", [(500, 4, 5), (500, 3, 4, 5)])
def test_every_image_is_a_window_of_its_own_padded_self_and_all_shifts_occur(shape):
    augment = Augment(shift=1)
    padded = augment.pad(numbered(*shape))
    moved = augment(padded)
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
    augment = Augment(shift=2, flip=True)
    padded = augment.pad(torch.randint(0, 255, (50, 8, 8), dtype=torch.uint8))
    torch.manual_seed(1)
    first = augment(padded)
    torch.manual_seed(1)
    assert torch.equal(first, augment(padded))
    assert first.dtype == torch.uint8


def test_rows_of_a_table_cannot_be_shifted():
    with pytest.raises(InputError, match=r"only images can be shifted; rows have shape \(7,\)"):
        Augment(shift=1).pad(torch.zeros(3, 7))
