"""Write the files of the hospital example into three folders: python examples/make_hospitals.py .

    north/, south/, west/
        patients.csv   people who came to the emergency room with chest pain, by ward
        shares.csv     how many of each ward's patients had a heart attack, as its registry says
    hidden/            what each patient had, which no file above says, for the check at the end

The people are simulated. No row of a hospital is in the folder of another.
"""

import sys
from pathlib import Path

import numpy as np
import pandas as pd

HOSPITALS = {"north": 5, "south": 4, "west": 3}  # wards
PATIENTS = 320  # of each ward, about


def main(arguments):
    if len(arguments) != 1:
        print("usage: python make_hospitals.py FOLDER", file=sys.stderr)
        return 2
    top = Path(arguments[0])
    (top / "hidden").mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(11)
    for name, wards in HOSPITALS.items():
        patients = draw_patients(rng, name, wards)
        (top / name).mkdir(exist_ok=True)
        counts = patients.groupby("ward")["attack"].agg(["sum", "size"])
        counts.columns = ["positives", "total"]
        _write(patients.drop(columns="attack"), top / name / "patients.csv")
        _write(counts.reset_index(), top / name / "shares.csv")
        _write(patients, top / "hidden" / f"{name}.csv")
        print(f"{name}: {len(patients):,} patients in {wards} wards")
    return 0


def draw_patients(rng, hospital, wards):
    """Draw the patients of a hospital, ward by ward: some wards get the worse cases."""
    frames = []
    for j, share in enumerate(np.linspace(0.06, 0.55, wards) + rng.uniform(-0.04, 0.04, wards)):
        number = int(rng.integers(PATIENTS - 60, PATIENTS + 60))
        attack = rng.random(number) < share
        came_by = np.where(rng.random(number) < 0.25 + 0.45 * attack, "ambulance", "walked in")
        frames.append(
            pd.DataFrame(
                {
                    "ward": f"{hospital} {chr(ord('A') + j)}",
                    "age": np.clip(rng.normal(58 + 9 * attack, 13), 20, 99).round().astype(int),
                    "troponin": np.exp(rng.normal(2.2 + 1.6 * attack, 1.0)).round(1),
                    "pulse": np.clip(rng.normal(84 + 8 * attack, 15), 40, 190).round().astype(int),
                    "came_by": came_by,
                    "attack": attack.astype(int),
                }
            )
        )
    return pd.concat(frames, ignore_index=True)


def _write(frame, path):
    frame.to_csv(path, index=False, lineterminator="\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
