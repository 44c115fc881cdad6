"""Files that Python callers write: what exists is replaced only with force, as on the command line;
and how the public objects show themselves."""

import numpy as np
import pandas as pd
import pytest

import adaptive_qs
from adaptive_qs import CodedTable, Domain, Release, Schema, Synthesizer
from adaptive_qs.cli import main
from adaptive_qs.data.stamps import stamp_path
from adaptive_qs.errors import InputError
from adaptive_qs.ledger.session import Session
from adaptive_qs.release.beside import manifest_path

SCHEMA = Schema.parse({"age": 77, "height": 2})
FRAME = pd.DataFrame({"age": [30, 41, 52] * 40, "height": [0, 1] * 60})
REFUSED = r"exists already: add force=True to replace it, or give another path$"


def fitted(**options):
    return Synthesizer(rho=1, workers=1, **options).fit(FRAME, schema=SCHEMA)


def test_a_model_is_saved_over_a_file_only_when_told(tmp_path):
    path = tmp_path / "r.zip"
    path.write_text("mine")
    model = fitted()
    for saver in (model, model.release_):
        with pytest.raises(InputError, match=REFUSED):
            saver.save(path)
        assert path.read_text() == "mine"
    model.save(path, force=True)
    assert Release.load(path).events == model.release_.events
    with pytest.raises(InputError, match=REFUSED):
        Synthesizer.load(path).save(str(path))
    model.release_.save(path, force=True)


@pytest.fixture
def ledger(tmp_path):
    path = tmp_path / "l.ledger"
    assert main(["ledger", "create", "--ledger", str(path), "--rho", "9"]) == 0
    return path


def test_a_refused_save_leaves_the_run_open_in_its_ledger(ledger, tmp_path):
    path = tmp_path / "r.zip"
    path.write_text("mine")
    model = fitted(ledger=ledger)
    with pytest.raises(InputError, match=REFUSED):
        model.save(path)
    model._session.leave()
    again = fitted(ledger=ledger, resume=True)
    assert again.release_.events == model.release_.events
    with pytest.raises(InputError, match=REFUSED):
        again.save(path)
    again.save(tmp_path / "other.zip")


def test_a_resumed_run_replaces_what_it_had_written_itself(ledger, tmp_path, monkeypatch):
    def interrupted(session):
        session.leave()
        raise KeyboardInterrupt

    def answers(**options):
        return adaptive_qs.answer(FRAME, SCHEMA, 1, rho=1, ledger=ledger, **options)

    with monkeypatch.context() as patched:
        patched.setattr(Session, "finish", interrupted)
        with pytest.raises(KeyboardInterrupt):
            fitted(ledger=ledger).save(tmp_path / "r.zip")
        with pytest.raises(KeyboardInterrupt):
            answers().write(tmp_path / "a.csv")
    assert len(pd.read_csv(tmp_path / "a.csv")) == 79
    fitted(ledger=ledger, resume=True).save(tmp_path / "r.zip")
    answers(resume=True).write(tmp_path / "a.csv")
    with pytest.raises(InputError, match=REFUSED):
        fitted(ledger=ledger).save(tmp_path / "r.zip")


@pytest.mark.parametrize("which", ["table", "statement", "stamp"])
def test_answers_are_written_over_files_only_when_told_and_nothing_is_spent(which, tmp_path):
    path = tmp_path / "a.csv"
    mine = {"table": path, "statement": manifest_path(path), "stamp": stamp_path(path)}[which]
    mine.write_text("mine")
    answers = adaptive_qs.answer(FRAME, SCHEMA, 1, rho=1)
    with pytest.raises(InputError, match=REFUSED):
        answers.write(path)
    assert answers.rho_spent == 0
    assert mine.read_text() == "mine"
    assert list(tmp_path.iterdir()) == [mine]
    assert answers.write(path, force=True) == 79
    assert not stamp_path(path).exists()


def test_a_schema_is_written_over_a_file_only_when_told(tmp_path):
    path = tmp_path / "s.json"
    SCHEMA.dump(path)
    with pytest.raises(InputError, match=REFUSED):
        SCHEMA.dump(path)
    SCHEMA.dump(path, force=True)
    assert Schema.load(path) == SCHEMA


def test_a_release_shows_its_privacy_and_not_its_domain():
    shown = repr(fitted().release_)
    assert shown.startswith("<Release: 2 columns, ")
    assert "epsilon" in shown
    assert "rho 1 spent" in shown
    assert len(shown) < 150
    assert "age" not in shown
    assert "NOT PRIVATE" in repr(fitted(insecure_seed=1).release_)


def test_answers_and_plans_show_their_number_mechanism_and_budget():
    answers = adaptive_qs.answer(FRAME, SCHEMA, 1, epsilon=1)
    shown = repr(answers)
    assert shown.startswith("<Answers to 79 queries by ")
    assert "epsilon 1, delta 1e-09" in shown
    assert shown.endswith("reading them spends the budget, once>")
    assert answers.rho_spent == 0
    answers.to_arrow()
    assert repr(answers).endswith(": read>")
    shown = repr(adaptive_qs.plan(SCHEMA, 1, epsilon=1))
    assert shown.startswith("<BatchPlan of 79 queries by ")
    assert len(shown) < 150


def test_private_tables_and_comparisons_show_no_cell_and_no_number_of_rows():
    domain = Domain.from_sizes({"a": 90, "b": 2})
    table = CodedTable.from_codes(domain, [np.full(71, 83), np.zeros(71, dtype=int)])
    assert repr(table) == "<CodedTable of 2 columns>"
    pair = adaptive_qs.TablePair(table, table)
    found = adaptive_qs.evaluate(table, table)
    for shown in (repr(pair), repr(found)):
        assert "83" not in shown
        assert "71" not in shown
    assert "owner only" in repr(found)
