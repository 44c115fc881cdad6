"""Write households.csv and persons.csv: made-up households, and who lives in them.

python docs/example/make_households.py [--households 10000] [--seed 1]
"""

import argparse
import csv
import random


def household(number: int) -> list:
    """One row: the housing depends on the district, and the income on the housing."""
    (district,) = random.choices(["north", "harbour", "old town", "hills"], [4, 3, 2, 1])
    (housing,) = random.choices(["rented", "owned"], [1, 3 if district == "hills" else 1])
    income = min(int(random.gammavariate(4, 10 if housing == "owned" else 7)), 149)
    return [number, district, housing, income]


def persons(number: int, housing: str, income: int) -> list:
    """The rows of a household: adults first, who went to school for the longer the more it has."""
    adults = random.choice([1, 2, 2])
    often = [5, 3, 3, 1, 1] if housing == "owned" else [8, 2, 1, 1, 0]
    (children,) = random.choices(range(5), often)
    rows = []
    for place in range(adults + children):
        age = random.randint(18, 90) if place < adults else random.randint(0, 17)
        study = min(age - 6, 7 + income // 10) + random.randint(-1, 1)
        rows.append([number, age, random.choice("fm"), min(max(study, 0), 18) if age >= 6 else 0])
    return rows


def main() -> None:
    """Write both tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--households", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    random.seed(given.seed)
    parents = [household(1_000 + number) for number in range(given.households)]
    children = [row for number, _, *more in parents for row in persons(number, *more)]
    random.shuffle(children)
    tables = {
        "households.csv": [["household", "district", "housing", "income"], *parents],
        "persons.csv": [["household", "age", "sex", "study"], *children],
    }
    for name, rows in tables.items():
        with open(name, "w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows(rows)


if __name__ == "__main__":
    main()
