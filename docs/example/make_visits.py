"""Write visits.csv: made-up visits to a clinic, one row each. The guides use it as private table.

python docs/example/make_visits.py [--rows 5000] [--patients 0] [--stays] [--seed 1]
    [--out visits.csv]
"""

import argparse
import csv
import random

COLUMNS = ["visit_id", "age", "district", "reason", "wait_minutes", "insured"]


def visit(number: int) -> list:
    """One row. The reason depends on the age, and the waiting time on the reason."""
    age = min(int(random.triangular(0, 100, 70)), 99)
    likely = {"check-up": 3, "infection": 2, "injury": 3 if age < 40 else 1, "chronic": age / 12}
    (reason,) = random.choices(list(likely), list(likely.values()))
    wait = min(int(random.expovariate(1 / (12 if reason == "injury" else 45))), 300)
    (district,) = random.choices(["north", "harbour", "old town", "hills"], [4, 3, 2, 1])
    (insured,) = random.choices(["yes", "no", "?"], [90, 8, 2])
    return [number, age, district, reason, wait, insured]


def add_stays(rows: list[list]) -> None:
    """How long each stayed, the wait included, as a last column; and children are insured."""
    rows[0].append("stay_minutes")
    for row in rows[1:]:
        _, age, _, _, wait, _ = row
        row.append(wait + 5 + int(random.expovariate(1 / 20)))
        if age < 15:
            row[COLUMNS.index("insured")] = "yes"


def main() -> None:
    """Write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=5_000)
    parser.add_argument("--patients", type=int, default=0, help="add whose visit it was")
    parser.add_argument("--stays", action="store_true", help="add a column, and keep two rules")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", default="visits.csv")
    given = parser.parse_args()
    random.seed(given.seed)
    with open(given.out, "w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        rows = [[*COLUMNS], *(visit(number) for number in range(given.rows))]
        if given.stays:
            add_stays(rows)
        if given.patients:  # of whom some come often
            rows[0].append("patient")
            for row in rows[1:]:
                row.append(f"p{int(given.patients * random.random() ** 2)}")
        table.writerows(rows)


if __name__ == "__main__":
    main()
