"""Small related tables for tests: households and persons."""

from __future__ import annotations

import numpy as np
import pandas as pd

from adaptive_qs import RelatedSynthesizer
from adaptive_qs.privacy.mechanisms import auditing

SCHEMA = {
    "version": 1,
    "key": "home",
    "most_children": 3,
    "parents": {
        "version": 1,
        "columns": [
            {"name": "region", "type": "categorical", "values": ["n", "s"]},
            {"name": "income", "type": "integer", "min": 0, "max": 3},
        ],
    },
    "children": {
        "version": 1,
        "columns": [
            {"name": "age", "type": "integer", "min": 0, "max": 4},
            {"name": "sex", "type": "categorical", "values": ["f", "m"], "missing": ["?"]},
        ],
        "ignore": ["id"],
    },
}


def made(parents=400, seed=0, most=4):
    """Households and persons, of whom one household in five or so has more than count.

    Age follows the income of the household, which follows the region, and so does their number.
    """
    rng = np.random.default_rng(seed)
    region = rng.integers(0, 2, parents)
    income = np.minimum(region + rng.integers(0, 3, parents), 3)
    size = np.minimum(income + rng.integers(0, 2, parents), most)
    key = rng.permutation(parents) + 11
    of = np.repeat(np.arange(parents), size)
    homes = pd.DataFrame({"home": key, "region": np.array(["n", "s"])[region], "income": income})
    persons = pd.DataFrame(
        {
            "id": np.arange(len(of)),
            "home": key[of],
            "age": np.minimum(income[of] + rng.integers(0, 2, len(of)), 4),
            "sex": rng.choice(["f", "m", "?"], len(of), p=[0.45, 0.45, 0.1]),
        }
    )
    return homes, persons.iloc[rng.permutation(len(persons))].reset_index(drop=True)


def without(tables, key):
    """The tables without one household and all its persons."""
    return tuple(table[table["home"] != key].reset_index(drop=True) for table in tables)


def published(tables, mechanisms, **options):
    """All that a run on two tables lets out, with the noise of these mechanisms."""
    with auditing(mechanisms):
        model = RelatedSynthesizer(beyond_limits=True, **options).fit(*tables, schema=SCHEMA)
    pair = model.release_.sample(20, seed=1)
    sampled = {name: table.to_pandas().to_csv().encode() for name, table in pair._asdict().items()}
    return {"digests": repr(model.release_.digests()).encode(), **sampled}
