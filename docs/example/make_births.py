"""Write births.csv: made-up births, one row each, in the columns of Israel's release of 2024.

python docs/example/make_births.py [--rows 20000] [--seed 1] [--out births.csv]
"""

import argparse
import csv
import random

COLUMNS = ["month", "mother_age", "parity", "weeks", "sex", "weight"]


def birth() -> list:
    """One row. Parity grows with the age; the weight follows weeks, sex and parity."""
    age = min(max(round(random.gauss(31, 5.5)), 16), 49)
    parity = 1
    while parity < 8 and random.random() < (age - 15) / 45:
        parity += 1
    early = random.random() < 0.07
    weeks = min(max(round(random.gauss(34, 2.5) if early else random.gauss(39.4, 1.2)), 24), 42)
    sex = random.choices(["female", "male"], [485, 515])[0]
    mean = 3_300 + 170 * (weeks - 39.5) + 120 * (sex == "male") + 30 * (parity > 1)
    weight = min(max(round(random.gauss(mean, 380), -1), 500), 5_490)
    if weeks < 28:
        weight = min(weight, 1_990)
    return [random.randint(1, 12), age, parity, weeks, sex, int(weight)]


def main() -> None:
    """Write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", default="births.csv")
    given = parser.parse_args()
    random.seed(given.seed)
    with open(given.out, "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([COLUMNS, *(birth() for _ in range(given.rows))])


if __name__ == "__main__":
    main()
