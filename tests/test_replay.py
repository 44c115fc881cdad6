"""The whole job on neighbouring tables: with the noisy outputs frozen, every byte is the same.

What is written may depend on the private rows only through the outputs of the mechanisms. So a
second run on a neighbour, whose mechanisms hand out what the first run's did, must ask for the
same events in the same order and write the same bundle and the same table.
"""

import shutil
from functools import partial
from itertools import count

import pandas as pd
import pytest

from adaptive_qs import Synthesizer, answer
from adaptive_qs.audit.replay import Recorder, Replayer
from adaptive_qs.ledger.book import LedgerBook
from adaptive_qs.ledger.mark import mark_path
from adaptive_qs.privacy.events import Cost
from adaptive_qs.synthesis.rows import SynthesisSettings

SCHEMA = {
    "version": 1,
    "columns": [
        {"name": "a", "type": "categorical", "values": ["x", "y", "z"], "missing": ["?"]},
        {"name": "b", "type": "integer", "min": 0, "max": 19},
        {"name": "c", "type": "boolean"},
    ],
}
ROWS = [("xyz"[i % 3], i % 7, i % 2 == 0) for i in range(400)]
NEIGHBOURS = {
    "a typical row more": [*ROWS, ROWS[0]],
    "the rarest combination more": [*ROWS, ("z", 19, True)],
    "a missing value more": [*ROWS, (None, 0, False)],
    "a row less": ROWS[1:],
}


def recording():
    """Makers of mechanisms that record and that replay, and all that they made."""
    made = []

    def recorder(ledger, entropy):
        made.append(Recorder(ledger, entropy))
        return made[-1]

    def replayer(ledger, entropy):
        made.append(Replayer(ledger, entropy, made[0].calls))
        return made[-1]

    return recorder, replayer, made


@pytest.fixture(params=["in memory", "on a ledger"])
def ledger(request, tmp_path_factory):
    """Makes copies of one fresh ledger, or of none."""
    original = tmp_path_factory.mktemp("ledger") / "fresh"
    LedgerBook.create(original, Cost.within(1), {"rho": 1.0, "delta": 1e-9}).close()
    copies = (original.with_name(f"copy {number}") for number in count())

    def copy():
        if request.param == "in memory":
            return None
        ledger = next(copies)
        shutil.copy(mark_path(original), mark_path(ledger))
        return shutil.copy(original, ledger)

    return copy


def entries(ledger):
    """What the entries of a ledger say, but for when; nothing without one."""
    return [] if ledger is None else [row.body for row in LedgerBook(ledger).rows()]


def artefacts(rows, folder, ledger, monkeypatch, mechanisms):
    """What is written by a fit whose mechanisms are made by ``mechanisms``."""
    monkeypatch.setattr("adaptive_qs.synthesizer.job.Mechanisms", mechanisms)
    frame = pd.DataFrame(rows, columns=["a", "b", "c"])
    model = Synthesizer(rho=0.2, max_memory="1GB", workers=1, ledger=ledger)
    fitted = model.fit(frame, schema=SCHEMA)
    fitted.save(folder / "r.zip", force=True)
    return (folder / "r.zip").read_bytes(), fitted.sample(seed=1).to_csv(), entries(ledger)


@pytest.mark.parametrize("neighbour", NEIGHBOURS)
def test_neighbours_write_the_same_bytes(neighbour, ledger, tmp_path, monkeypatch):
    few_rows = partial(SynthesisSettings, fewest_rows=500)
    monkeypatch.setattr("adaptive_qs.release.release.SynthesisSettings", few_rows)
    recorder, replayer, made = recording()
    first = artefacts(ROWS, tmp_path, ledger(), monkeypatch, recorder)
    assert artefacts(NEIGHBOURS[neighbour], tmp_path, ledger(), monkeypatch, replayer) == first
    recorded, replayed = made
    assert len(replayed.calls) == len(recorded.calls) > 5  # total, one-way, one round


def answered(rows, folder, ledger, monkeypatch, mechanisms):
    """Every file that answers are written to."""
    monkeypatch.setattr("adaptive_qs.answering.job.Mechanisms", mechanisms)
    frame = pd.DataFrame(rows, columns=["a", "b", "c"])
    options = {"rho": 0.2, "max_memory": "1GB", "jobs": 1, "ledger": ledger}
    answer(frame, SCHEMA, [1, 2], **options).write(folder / "a.csv", force=True)
    return {path.name: path.read_bytes() for path in folder.iterdir()}, entries(ledger)


@pytest.mark.parametrize("neighbour", NEIGHBOURS)
def test_neighbours_write_the_same_answers(neighbour, ledger, tmp_path, monkeypatch):
    recorder, replayer, made = recording()
    first = answered(ROWS, tmp_path, ledger(), monkeypatch, recorder)
    assert answered(NEIGHBOURS[neighbour], tmp_path, ledger(), monkeypatch, replayer) == first
    recorded, replayed = made
    assert len(replayed.calls) == len(recorded.calls) > 5
