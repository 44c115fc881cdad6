"""Write generated households, the persons in them, and the trips of these persons on one day.

The files are town/households.csv, town/persons.csv and town/trips.csv.

python docs/example/make_households.py [--households 40000] [--seed 1]
"""

import argparse
import csv
import random
from pathlib import Path


def household(number: int) -> list:
    """Return one row: the housing depends on the district, and the income on the housing."""
    (district,) = random.choices(["north", "harbour", "old town", "hills"], [4, 3, 2, 1])
    (housing,) = random.choices(["rented", "owned"], [1, 3 if district == "hills" else 1])
    income = min(int(random.gammavariate(4, 10 if housing == "owned" else 7)), 149)
    return [number, district, housing, income]


def persons(number: int, housing: str, income: int) -> list:
    """Return the rows of a household, adults first: with more income they studied for longer."""
    adults = random.choice([1, 2, 2])
    often = [5, 3, 3, 1, 1] if housing == "owned" else [8, 2, 1, 1, 0]
    (children,) = random.choices(range(5), often)
    rows = []
    for place in range(adults + children):
        age = random.randint(18, 90) if place < adults else random.randint(0, 17)
        study = min(age - 6, 7 + income // 10) + random.randint(-1, 1)
        rows.append([number, age, random.choice("fm"), min(max(study, 0), 18) if age >= 6 else 0])
    return rows


def trips(person: int, district: str, age: int) -> list:
    """Return the rows of a person: the old travel less, and nobody below 18 drives."""
    often = [3, 2, 2, 0] if age < 18 else [1, 2, 4, 2] if age < 65 else [4, 3, 1, 0]
    (number,) = random.choices(range(4), often)
    likely = [4, 5, 2, 0] if age < 18 else [2, 2, 3, 7] if age < 65 else [5, 1, 5, 2]
    likely[3] *= 4 if district == "hills" else 1
    rows = []
    for _ in range(number):
        (vehicle,) = random.choices(["foot", "bicycle", "bus", "car"], likely)
        speed = {"foot": 5, "bicycle": 14, "bus": 18, "car": 30}[vehicle]
        far = random.gammavariate(2, 0.5 if vehicle == "foot" else 3)
        rows.append([person, vehicle, min(1 + int(60 * far / speed), 89)])
    return rows


def main() -> None:
    """Write the three tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--households", type=int, default=40_000)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    random.seed(given.seed)
    homes = [household(1_000 + number) for number in range(given.households)]
    people, travels = [], []
    for number, district, *more in homes:
        for row in persons(number, *more):
            people.append([50_000 + len(people), *row])
            travels += trips(people[-1][0], district, row[1])
    random.shuffle(people)
    random.shuffle(travels)
    tables = {
        "households": [["household", "district", "housing", "income"], *homes],
        "persons": [["person", "household", "age", "sex", "study"], *people],
        "trips": [["person", "vehicle", "minutes"], *travels],
    }
    Path("town").mkdir(exist_ok=True)
    for name, rows in tables.items():
        with open(f"town/{name}.csv", "w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows(rows)


if __name__ == "__main__":
    main()
