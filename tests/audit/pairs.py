"""The replay audit on generated schemas: short in the suite, long in a script."""

from dataclasses import dataclass, field

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from adaptive_qs.audit.audit import audit
from adaptive_qs.privacy.unit import NEIGHBOURS

from .schemas import columns, heaped, learnt, schemas, workloads


@dataclass
class Replayed:
    """What a number of audits added up to."""

    schemas: int = 0
    pairs: int = 0
    runs: int = 0
    draws: int = 0
    findings: list = field(default_factory=list)


def replay_pairs(pairs, num_schemas, start=0, sample_every=10, persons=False):
    """Audit ``pairs`` pairs of neighbours, evenly over generated schemas; what was found.

    Neighbours differ by a row, or by a person with one to many rows, added or replaced.
    """
    total = Replayed()
    each = -(-pairs // num_schemas)

    @seed(start)
    @settings(
        max_examples=num_schemas,
        database=None,
        derandomize=False,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(
        st.data(),
        st.one_of(schemas(), schemas(kinds=st.one_of(learnt(), heaped(), columns()))),
        st.integers(0, 2**32 - 1),
    )
    def one_schema(data, schema, table_seed):
        workload, mechanism = data.draw(workloads(schema))
        unit = {}
        if persons:
            schema = schema.model_copy(update={"person": "whose"})
            unit["rows_per_person"] = data.draw(st.sampled_from([1, 2, 3, 4]))
            unit["neighbours"] = data.draw(st.sampled_from([*NEIGHBOURS]))
        report = audit(
            schema, workload, each, table_seed, sample_every=sample_every, mechanism=mechanism,
            **unit,
        )  # fmt: skip
        total.schemas += 1
        total.pairs += report.pairs
        total.runs += report.runs
        total.draws += report.draws
        total.findings += report.findings

    one_schema()
    return total
