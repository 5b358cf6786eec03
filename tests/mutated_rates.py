"""Rates files as people send them: a valid one with something in it changed."""

import random

WORDS = " |0|1|-1|0.5|1.5|50|50%|1e400|nan|inf|NA|-|<5|0.1-0.2|=1+1|s1|share|1/2|true|#REF!|0,5"
CELLS = [*WORDS.split("|"), "", "\x1b[31m", "\u202e", "\x00", "é", "e\u0301", '"', "'", "٣"]
CELLS += ["2024-01-01", "9" * 400, "x" * 5_000]
HEADERS = ["share", "positives", "total", "n", "se", "standard_error", "low", "high", "", "set"]
ENCODINGS = ["utf-8", "utf-8-sig", "utf-16", "latin-1", "utf-32", "cp1252"]
DELIMITERS = [",", ";", "\t", "|", " "]


def table(rng):
    """Return the cells of a valid file, in one of the forms that are read."""
    sets = [f"s{i}" for i in range(rng.choice((2, 3, 8, 40)))]
    form = rng.randrange(4)
    shares = [round(rng.random(), 3) for _ in sets]
    if form == 0:
        return [["region", "share"], *([s, str(p)] for s, p in zip(sets, shares, strict=True))]
    if form == 1:
        rows = ([s, str(p), "0.02"] for s, p in zip(sets, shares, strict=True))
        return [["region", "share", "standard_error"], *rows]
    if form == 2:
        rows = ([s, str(round(100 * p)), "100"] for s, p in zip(sets, shares, strict=True))
        return [["region", "positives", "total"], *rows]
    rows = ([s, str(p), str(round(1 - p, 3))] for s, p in zip(sets, shares, strict=True))
    return [["region", "cat", "dog"], *rows]


def mutated_rates(folder, seed, number):
    """Write a file with one to four changes and return its path."""
    rng = random.Random(f"{seed}/{number}")
    cells = table(rng)
    for _ in range(rng.choice((0, 1, 1, 2, 4))):
        change(cells, rng)
    delimiter = rng.choice(DELIMITERS) if rng.random() < 0.3 else ","
    ending = rng.choice(("\r\n", "\r", "\n\n")) if rng.random() < 0.2 else "\n"
    text = ending.join(delimiter.join(row) for row in cells)
    encoding = rng.choice(ENCODINGS) if rng.random() < 0.2 else "utf-8"
    data = bytearray(text.encode(encoding, "replace"))
    for _ in range(rng.choice((0, 0, 0, 1, 5))):
        if data:
            data[rng.randrange(len(data))] = rng.randrange(256)
    if rng.random() < 0.1:
        del data[rng.randrange(len(data) + 1) :]
    path = folder / f"rates-{number}.csv"
    path.write_bytes(data)
    return path


def change(cells, rng):
    """Change a cell, a line or a column."""
    row = rng.randrange(len(cells))
    way = rng.randrange(8)
    if way <= 2 and cells[row]:
        cells[row][rng.randrange(len(cells[row]))] = rng.choice(CELLS)
    elif way == 3:
        cells.insert(row, list(rng.choice(cells)))
    elif way == 4 and len(cells) > 1:
        del cells[row]
    elif way == 5:
        cells[row] = cells[row][:-1] if rng.random() < 0.5 else [*cells[row], rng.choice(CELLS)]
    elif way == 6:
        name = rng.choice(HEADERS)
        for i, line in enumerate(cells):
            line.append(name if i == 0 else rng.choice(CELLS))
    elif cells[0]:
        cells[0][rng.randrange(len(cells[0]))] = rng.choice(HEADERS)
