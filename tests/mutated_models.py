"""Model folders as a stranger might write them: a valid one with something in it changed.

The manifest is always made to fit, so that what is changed gets as far as it can.
"""

import copy
import json
import math
import random
import struct
from pathlib import Path

from unmix.files import sha256_of
from unmix.learn.saved import MANIFEST

STRANGE = (
    None,
    True,
    -1,
    0,
    1,
    2,
    0.5,
    -0.0,
    1.5,
    1e308,
    -1e308,
    math.nan,
    math.inf,
    10**20,
    10**400,
    "",
    "a",
    "mlp",
    "\x1b[31m",
    "\u202e",
    [],
    {},
    [[]],
    [None],
    {"a": 1},
    [1, 2, 3],
    ["a", "a"],
)
TREE_WORDS = (
    b"-1",
    b"0",
    b"1",
    b"7",
    b"99",
    b"-99",
    b"2147483647",
    b"-2147483648",
    b"1e308",
    b"nan",
)
TREE_WORDS += (b"inf", b"", b" ", b"4294967296", b"0.5", b"x", b"99999999999999999999")


def sign(folder):
    """Make the manifest fit the files that are there."""
    path = Path(folder) / MANIFEST
    manifest = json.loads(path.read_text())
    for name, entry in manifest["files"].items():
        file = Path(folder) / name
        entry |= {"bytes": file.stat().st_size, "sha256": sha256_of(file)}
    path.write_text(json.dumps(manifest))


def mutate(folder, rng):
    """Change one to three things in a model folder; return what was changed."""
    folder = Path(folder)
    weights = next(p for p in folder.iterdir() if p.name in ("trees.txt", "weights.safetensors"))
    done = []
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        file = rng.choice((folder / "model.json", weights))
        change = rng.choice(CHANGES[file.name])
        data = file.read_bytes()
        try:
            file.write_bytes(change(data, rng))
        except (
            ValueError,
            LookupError,
            RecursionError,
            struct.error,
        ):  # not any more
            file.write_bytes(flip_bytes(data, rng))
        done.append(f"{file.name}: {change.__name__}")
    sign(folder)
    return done


def places(value, path=()):
    """Yield the path of every entry of a JSON value, the whole among them."""
    yield path
    if isinstance(value, dict | list):
        entries = value.items() if isinstance(value, dict) else enumerate(value)
        for key, entry in entries:
            yield from places(entry, (*path, key))


def replace_entry(data, rng):
    """Put something strange in the place of one entry of JSON."""
    return changed_json(data, rng, lambda old: rng.choice(STRANGE))


def change_number(data, rng):
    """Make one number larger, smaller or negative, and double or cut one list."""

    def change(old):
        if isinstance(old, bool) or old is None:
            return not old
        if isinstance(old, int | float):
            return rng.choice((old + 1, -old, old * 2, old * 10**6, old - 1, str(old), [old]))
        if isinstance(old, list):
            return rng.choice((old + old, old[:-1], [old], old[::-1]))
        if isinstance(old, dict):
            return rng.choice(([old], list(old), {**old, "more": 1}, dict(list(old.items())[:-1])))
        return rng.choice((old + "x", old[:-1], [old], {old: old}))

    return changed_json(data, rng, change)


def swap_entries(data, rng):
    """Put one entry in the place of another."""
    state = json.loads(data)
    source = copy.deepcopy(at(state, rng.choice(list(places(state)))))
    return changed_json(data, rng, lambda old: source)


def nest(data, rng):
    """Put brackets around an entry, a few or too many."""
    depth = rng.choice((1, 5, 100, 100_000))
    text = changed_json(data, rng, lambda old: "NESTED")
    return text.replace(b'"NESTED"', b"[" * depth + b"1" + b"]" * depth)


def changed_json(data, rng, change):
    state = json.loads(data)
    # By depth first, or the many numbers of a list would get all changes.
    found = list(places(state))
    depth = rng.choice(sorted({len(path) for path in found}))
    path = rng.choice([path for path in found if len(path) == depth])
    if not path:
        return json.dumps(change(state)).encode()
    parent = at(state, path[:-1])
    parent[path[-1]] = change(parent[path[-1]])
    return json.dumps(state).encode()


def at(value, path):
    for key in path:
        value = value[key]
    return value


def flip_bytes(data, rng):
    """Change a few bytes."""
    changed = bytearray(data)
    for _ in range(rng.randint(1, 8)):
        if changed:
            changed[rng.randrange(len(changed))] = rng.randrange(256)
    return bytes(changed)


def cut_bytes(data, rng):
    """Leave out or repeat a piece."""
    start, end = sorted(rng.randrange(len(data) + 1) for _ in range(2))
    return data[:start] + data[end:] if rng.random() < 0.5 else data[:end] + data[start:]


def change_tree_number(data, rng):
    """Put another number in the place of one in the trees."""
    head, _, tail = data.partition(b"end of trees")
    lines = head.split(b"\n")
    chosen = rng.choice([i for i, line in enumerate(lines) if b"=" in line])
    name, _, value = lines[chosen].partition(b"=")
    words = value.split(b" ")
    words[rng.randrange(len(words))] = rng.choice(TREE_WORDS)
    lines[chosen] = name + b"=" + b" ".join(words)
    return b"\n".join(lines) + b"end of trees" + tail


def change_tree_line(data, rng):
    """Leave out, repeat or exchange lines of the trees, or drop a value of one."""
    lines = data.split(b"\n")
    i, j = rng.randrange(len(lines)), rng.randrange(len(lines))
    way = rng.randrange(4)
    if way == 0:
        del lines[i]
    elif way == 1:
        lines.insert(i, lines[j])
    elif way == 2:
        lines[i], lines[j] = lines[j], lines[i]
    else:
        lines[i] = lines[i].rpartition(b" ")[0]
    return b"\n".join(lines)


def change_header(data, rng):
    """Change the names, types, shapes and places of arrays in a file of safetensors."""
    length = int.from_bytes(data[:8], "little")
    strange = (*STRANGE, "F64", "I64")
    header = changed_json(data[8 : 8 + length], rng, lambda old: rng.choice(strange))
    return struct.pack("<Q", len(header)) + header + data[8 + length :]


def change_weights(data, rng):
    """Put a number that is not finite, or huge, into the weights."""
    length = int.from_bytes(data[:8], "little")
    size = rng.choice((4, 8))
    place = 8 + length + size * rng.randrange((len(data) - 8 - length) // size)
    value = rng.choice((math.nan, math.inf, -math.inf, 1e38, -1e38, 0.0))
    packed = struct.pack("<f" if size == 4 else "<d", value)
    return data[:place] + packed + data[place + size :]


CHANGES = {
    "model.json": (
        replace_entry,
        replace_entry,
        change_number,
        change_number,
        swap_entries,
        nest,
        flip_bytes,
    ),
    "trees.txt": (*[change_tree_number] * 3, change_tree_line, flip_bytes, cut_bytes),
    "weights.safetensors": (change_header, change_weights, flip_bytes, cut_bytes),
}


def generator(seed, number):
    """Return the random stream of one mutated folder."""
    return random.Random(f"{seed}/{number}")
