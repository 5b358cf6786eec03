"""Kills training with SIGKILL at random moments, resumes it each time, compares the final bits.

python benchmarks/kills.py 20
"""

import random
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from test_training import run_child


def main(kills=20):
    moments = random.Random(0)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        run_child(folder / "whole", folder / "whole.safetensors")
        for _ in range(kills):
            run_child(folder / "cut", folder / "cut.safetensors", moments.uniform(0.0, 0.3))
        finished_early = (folder / "cut.safetensors").exists()
        run_child(folder / "cut", folder / "cut.safetensors")
        whole, cut = ((folder / f"{n}.safetensors").read_bytes() for n in ("whole", "cut"))
    print(
        f"{kills} kills; finished before the last one: {finished_early}; identical: {whole == cut}"
    )
    sys.exit(whole != cut)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
