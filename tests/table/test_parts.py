"""Hours and weekdays in long periods: read from the cells of a column, measured, not written."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

from adaptive_qs import Synthesizer, TableSet
from adaptive_qs.audit.audit import audit
from adaptive_qs.cli.entry import main
from adaptive_qs.errors import DataError, InputError, ResourceExceeded, SchemaError
from adaptive_qs.release.drawing import Where
from adaptive_qs.run.memory import rule_bytes
from adaptive_qs.table.coded import CodedTable
from adaptive_qs.table.encode import decode, read_table
from adaptive_qs.table.propose import propose
from adaptive_qs.table.review import answer, list_questions
from adaptive_qs.table.rules import MOST_CELLS
from adaptive_qs.table.schema import Schema

RNG = np.random.default_rng(5)
N = 4_000


def some_times(rows=N):
    """Times of a year: on working days from 7 to 18, on Sundays at night, none on Saturdays."""
    days = RNG.integers(0, 52, rows) * 7 + RNG.integers(0, 6, rows)
    night = days % 7 == 0  # 2023-01-01 is a Sunday
    hours = np.where(night, RNG.integers(20, 24, rows), RNG.integers(7, 19, rows))
    seconds = days * 86_400 + hours * 3_600 + RNG.integers(0, 3_600, rows)
    return pd.Series(np.datetime64("2023-01-01", "s") + seconds.astype("m8[s]"))


TIMES = some_times()
TABLE = pd.DataFrame({
    "seen": TIMES.dt.strftime("%d.%m.%Y %H:%M:%S").where(RNG.random(N) < 0.95, "-"),
    "shift": np.where(TIMES.dt.hour >= 20, "night", np.where(TIMES.dt.hour < 12, "am", "pm")),
    "size": RNG.integers(0, 10, N),
})  # fmt: skip
SEEN = {
    "name": "seen", "type": "datetime", "min": "2023-01-01T00:00:00", "max": "2023-12-31T23:59:59",
    "granularity": "week", "format": "%d.%m.%Y %H:%M:%S", "missing": ["-"],
}  # fmt: skip
HOUR, DAY = (
    {"name": f"seen_{unit}", "type": "part", "of": "seen", "unit": unit}
    for unit in ("hour", "weekday")
)
OTHERS = [
    {"name": "shift", "type": "categorical", "values": ["night", "am", "pm"]},
    {"name": "size", "type": "integer", "min": 0, "max": 9},
]


def schema_of(*columns, **keys):
    return Schema.parse({"version": 1, "columns": [*columns, *OTHERS], **keys})


WHOLE = schema_of(SEEN, HOUR, DAY)


def parts_of(cells, way="%d.%m.%Y %H:%M:%S"):
    """Hours, weekdays by pandas; 24 and 7 for missing cells."""
    moments = pd.to_datetime(cells.where(cells != "-"), format=way)
    return moments.dt.hour.fillna(24), moments.dt.dayofweek.fillna(7)


@pytest.mark.parametrize("form", ["frame", "csv", "parquet", "typed"])
def test_codes_are_the_hours_and_weekdays_of_the_cells(form, tmp_path):
    table = TABLE
    if form == "typed":
        table = TABLE.assign(seen=TIMES.where(TABLE.seen != "-"))
    if form == "csv":
        TABLE.to_csv(table := tmp_path / "t.csv", index=False)
    if form == "parquet":
        TABLE.to_parquet(table := tmp_path / "t.parquet")
    schema = WHOLE if form != "typed" else schema_of({**SEEN, "format": None}, HOUR, DAY)
    codes = read_table(table, schema)
    for column, parts in zip(codes.columns[1:3], parts_of(TABLE.seen)):
        assert column.tolist() == parts.tolist()


def test_times_with_an_offset_are_read_in_utc_and_days_by_their_own_clock():
    cells = pd.DataFrame({"seen": ["2024-03-31T23:30:00-03:00", "2024-04-01T00:30:00+02:00"]})
    columns = [
        {"name": "seen", "type": kind, "min": f"2024-01-01{time}", "max": f"2024-12-31{time}",
         "granularity": "month"}
        for kind, time in (("datetime", "T00:00:00"), ("date", ""))
    ]  # fmt: skip
    times, days = (Schema.parse({"version": 1, "columns": [column, DAY]}) for column in columns)
    assert read_table(cells, times).columns[1].tolist() == [0, 6]  # Monday 02:30 and Sunday 22:30
    assert read_table(cells, days).columns[1].tolist() == [6, 0]


RULES = ("seen is missing -> size >= 1", "size = 3 -> shift = am")


@pytest.mark.parametrize("rules", [(), pytest.param(RULES, marks=pytest.mark.slow)])
def test_synthetic_times_have_their_hours_and_what_depends_on_them(rules, tmp_path):
    if rules:
        keep = ~((TABLE.seen == "-") & (TABLE["size"] == 0))
        keep &= ~((TABLE["size"] == 3) & (TABLE["shift"] != "am"))
    table = TABLE[keep] if rules else TABLE
    schema = schema_of(SEEN, HOUR, DAY, rules=rules)
    model = Synthesizer(rho=50, insecure_seed=1, beyond_limits=True, workers=1)
    made = model.fit(table, schema=schema).sample(seed=1)
    assert [*made] == ["seen", "shift", "size"]
    for true, own in zip(parts_of(table.seen), parts_of(made.seen)):
        # 32 counts are off by 0.3 rows of noise and one of rounding each, of 4,000 rows.
        shares = [part.value_counts(normalize=True) for part in (true, own)]
        assert shares[0].sub(shares[1], fill_value=0).abs().sum() < 0.02
    hours, _ = parts_of(made.seen)
    night = (hours >= 20) & (hours < 24)
    assert (night == (made["shift"] == "night"))[hours < 24].mean() > 0.98
    if rules:
        assert not ((made.seen == "-") & (made["size"] == 0)).any()
        assert (made["shift"][made["size"] == 3] == "am").all()
    codes = read_table(made, schema)
    drawn = model.release_.draw(seed=1).coded()
    assert all((a == b).all() for a, b in zip(codes.columns, drawn.columns))


@pytest.mark.parametrize("granularity", ["day", "week", "month", "quarter", "year"])
def test_values_stay_in_their_period_and_have_their_parts_if_it_has_them(granularity):
    last = "2023-09-12T12:00:00"
    content = {**SEEN, "granularity": granularity, "max": last, "min": "2023-01-04T10:00:00"}
    units = [HOUR] if granularity == "day" else [HOUR, DAY]
    schema = schema_of(content, *units)
    columns = [RNG.integers(0, size, 3_000) for size in schema.domain().sizes]
    table = CodedTable.from_codes(schema.domain(), columns)
    again = read_table(decode(table, schema, np.random.default_rng(1)), schema)
    assert (again.columns[0] == columns[0]).all()
    known = columns[0] < schema.columns[0].num_values
    low, high = schema.columns[0].ends(np.where(known, columns[0], 0))
    cycle = (1 if granularity == "day" else 7) * 86_400
    for place in range(1, len(units) + 1):
        whole = known & (high - low + 1 >= cycle)
        whole &= columns[place] < schema.columns[place].num_values
        assert (again.columns[place] == columns[place])[whole].all()


@pytest.mark.parametrize("equation", [False, True])
def test_rules_between_times_leave_hours_and_weekdays(equation):
    """Rows drawn again because of a rule are drawn in their hours and on their weekdays."""
    spent = RNG.integers(60, 7_200, N)
    times = {"seen": TIMES, "left": TIMES + spent.astype("m8[s]")}
    table = pd.DataFrame(
        {**{name: each.dt.strftime(SEEN["format"]) for name, each in times.items()}, "spent": spent}
    )
    columns = [
        {**SEEN, "name": name, "missing": [], "max": "2024-01-07T23:59:59"} for name in times
    ]
    for name in times:
        columns += [{**part, "name": f"{name}_{part['unit']}", "of": name} for part in (HOUR, DAY)]
    columns += [{"name": "spent", "type": "integer", "min": 0, "max": 7_199, "bins": 24}]
    rules = ["seen < left", "spent = (left - seen) / 1 second"][: 1 + equation]
    schema = Schema.parse({"version": 1, "columns": columns, "rules": rules})
    codes = read_table(table, schema)
    made = decode(codes, schema, np.random.default_rng(1)).to_pandas()
    assert (made.seen < made.left).all()
    assert not equation or (made.spent == (made.left - made.seen).dt.total_seconds()).all()
    again = read_table(decode(codes, schema, np.random.default_rng(1)), schema)
    for place in range(2, 6):
        assert (again.columns[place] == codes.columns[place]).mean() > 0.99


@pytest.mark.parametrize(
    ("rule", "granularity", "units"),
    [
        ("stay = b - a", "week", ("weekday",)),
        ("stay = (b - a) / 1 hour", "day", ("hour",)),
        ("b >= a + 2 days", "week", ("weekday", "hour")),
        ("b > a", "day", ("hour",)),
        ("stay > 9 -> b = a", "month", ("weekday",)),
    ],
)
def test_the_model_knows_which_hours_and_weekdays_rules_leave(rule, granularity, units):
    """The cells are those of all values that meet the rule, found one by one."""
    kind, time = ("datetime", "T00:00:00") if "hour" in units else ("date", "")
    column = {"type": kind, "granularity": granularity, "missing": [""], "min": f"2024-01-03{time}"}
    last = "2024-01-08" if "hour" in units else "2024-02-20"
    columns = [{**column, "name": name, "max": last + time} for name in "ab"]
    for unit in units:  # the second moment has one part only
        columns += [{"name": f"a_{unit}", "type": "part", "of": "a", "unit": unit}]
    columns += [{"name": "b_part", "type": "part", "of": "b", "unit": units[-1]}]
    columns += [{"name": "stay", "type": "integer", "min": 0, "max": 30, "missing": [""]}]
    rules = [rule, "b <= a + 3 hours"] if rule == "b > a" else [rule]
    schema = Schema.parse({"version": 1, "columns": columns, "rules": rules})
    step = np.timedelta64(15, "m") if "hour" in units else np.timedelta64(1, "D")
    every = np.arange(np.datetime64(f"2024-01-03{time}"), np.datetime64(last + time), step)
    cells = [pd.Series(each.ravel()) for each in np.meshgrid(every, every)]
    apart = (cells[1] - cells[0]).dt.total_seconds()
    met = {
        "stay = b - a": apart / 86_400, "stay = (b - a) / 1 hour": np.rint(apart / 3_600),
        "b >= a + 2 days": 5.0 * (apart >= 2 * 86_400) - 1,
        "stay > 9 -> b = a": 10.0 * (apart == 0),
        "b > a": 5.0 * ((apart > 0) & (apart <= 3 * 3_600)) - 1,
    }[rule]  # fmt: skip
    cells = {"a": cells[0], "b": cells[1], "stay": met}
    kept = pd.DataFrame(cells)[(met >= 0) & (met <= 30)].astype({"stay": int})
    codes = read_table(kept.astype({"stay": "Int64"}), schema)
    assert schema.ruleset.ties
    for tie in schema.ruleset.ties:
        found = tuple(codes.columns[schema.names.index(name)] for name in tie.names)
        assert tie.allowed[found].all()
        if tie.text or {"a", "b"} - {*tie.names} or rule == "stay > 9 -> b = a":
            continue
        known = np.zeros_like(tie.allowed)
        known[found] = True
        axes = [schema.column(name).num_values for name in tie.names]
        inside = tuple(
            slice(1, n - 1) if name in "ab" else slice(n) for name, n in zip(tie.names, axes)
        )
        assert (known == tie.allowed)[inside].all()  # but for periods of which a part is missing


def test_the_memory_of_a_run_has_the_cells_of_rules_and_their_weekdays():
    """A run that fits without rules does not fit with them, and the message says what they take."""
    column = {"type": "date", "granularity": "week", "min": "2023-01-02", "max": "2024-12-31"}
    columns = [{**column, "name": name} for name in "ab"]
    columns += [{**DAY, "of": name, "name": f"{name}_weekday"} for name in "ab"]
    columns += [{"name": "stay", "type": "integer", "min": 0, "max": 27}]
    table = pd.DataFrame({"a": ["2023-01-02"], "b": ["2023-01-03"], "stay": [1]})
    needed, said = [], ""
    for rules in ([], ["stay = b - a"]):
        schema = Schema.parse({"version": 1, "columns": columns, "rules": rules})
        with pytest.raises(ResourceExceeded, match="--max-memory") as refused:
            Synthesizer(rho=1, max_memory="400MB").fit(table, schema=schema)
        said = str(refused.value)
        needed.append(int(said.split("needs ")[1].split(" MB")[0].replace(",", "")))
    tied = 105 * 105 * 7 * 28  # weeks of both, weekday of the first, days between
    assert f"coarser bins: the rules take {-(-rule_bytes(schema) >> 20)} MB of it" in said
    assert needed[1] - needed[0] > 4 * tied >> 20
    least = f"{needed[0]}MB"
    with pytest.raises(ResourceExceeded, match="the rules take"):
        Synthesizer(rho=1, max_memory=least).fit(table, schema=schema)


@pytest.mark.slow
def test_weekdays_of_two_dates_and_the_days_between_stay():
    """Loans on working days for one to three weeks: rows of a fit keep all of that."""
    lent = np.datetime64("2023-01-02") + (
        7 * RNG.integers(0, 50, N) + RNG.integers(0, 5, N)
    ).astype("m8[D]")
    days = 7 * RNG.integers(1, 4, N)
    table = pd.DataFrame({"a": lent, "b": lent + days.astype("m8[D]"), "stay": days})
    column = {"type": "date", "granularity": "week", "min": "2023-01-02", "max": "2024-01-28"}
    columns = [{**column, "name": name} for name in "ab"]
    columns += [{**DAY, "of": name, "name": f"{name}_weekday"} for name in "ab"]
    columns += [{"name": "stay", "type": "integer", "min": 0, "max": 27}]
    schema = Schema.parse({"version": 1, "columns": columns, "rules": ["stay = b - a"]})
    model = Synthesizer(rho=50, insecure_seed=1, beyond_limits=True, workers=1)
    drawing = model.fit(table, schema=schema).release_.draw(seed=1)
    made = drawing.table().to_pandas().astype({"a": "M8[s]", "b": "M8[s]"})
    assert ((made.b - made.a).dt.days == made.stay).all()
    assert (made.stay % 7 == 0).mean() > 0.99
    assert (made.a.dt.dayofweek < 5).mean() > 0.99
    assert not drawing.contradictions


@pytest.mark.slow
def test_the_check_against_the_release_sees_the_weekdays_that_are_written():
    """A rule that the true table breaks moves all Saturdays to Sundays."""
    days = pd.Series(np.datetime64("2023-01-07") + 7 * RNG.integers(0, 50, 1_000).astype("m8[D]"))
    table = pd.DataFrame({"a": days.dt.date, "b": days.dt.date, "size": 1})
    columns = [
        {"name": "a", "type": "date", "min": "2023-01-01", "max": "2024-01-31"},
        {"name": "b", "type": "date", "min": "2023-01-01", "max": "2024-01-31"},
    ]  # fmt: skip
    columns = [{**column, "granularity": "month"} for column in columns]
    columns += [{**DAY, "of": name, "name": f"{name}_weekday"} for name in "ab"]
    schema = Schema.parse(
        {"version": 1, "columns": [*columns, OTHERS[1]], "rules": ["b = a + 1 day"]}
    )
    model = Synthesizer(rho=50, insecure_seed=1, beyond_limits=True, workers=1)
    drawing = model.fit(table, schema=schema).release_.draw(seed=1)
    made = drawing.table().to_pandas()
    assert (made.b == made.a + pd.Timedelta("1D")).all()
    seen = {found.columns: found.cell for found in drawing.contradictions}
    assert ("b_weekday",) in seen or ("a_weekday",) in seen


@pytest.mark.slow
def test_conditions_are_met_and_hours_kept_besides():
    model = Synthesizer(rho=50, insecure_seed=1, beyond_limits=True, workers=1)
    model.fit(TABLE, schema=WHOLE)
    made = model.release_.draw(2_000, 1, where="seen >= 2023-06-07").table().to_pandas()
    assert made.seen.min() >= pd.Timestamp("2023-06-07")
    assert ((made.seen.dt.hour >= 20) == (made["shift"] == "night")).mean() > 0.97


EVEN = pd.Series(np.datetime64("2021-01-01") + RNG.integers(0, 1_095, N).astype("m8[D]"))
WORK = EVEN[~EVEN.dt.dayofweek.isin([5, 6])].sample(N, replace=True, random_state=1)
WIDE = TABLE.assign(even=EVEN, work=WORK.array, seen_hour=RNG.random(N))


def test_a_proposal_has_parts_where_they_matter():
    schema = propose(WIDE)
    assert schema.parts == {
        "seen": {"hour": "seen_hour_", "weekday": "seen_weekday"},
        "work": {"weekday": "work_weekday"},
    }
    assert [*answer(schema, "publish", "seen").parts] == ["work"]
    months = WORK[WORK < "2022"].dt.strftime("%Y-%m")
    assert not propose(pd.DataFrame({"month": months})).parts  # whose cells have no day


@pytest.mark.slow
def test_a_proposal_accepted_as_it_is_keeps_hours_and_weekdays(tmp_path):
    WIDE.to_csv(tmp_path / "t.csv", index=False)
    words = ["schema", "init", str(tmp_path / "t.csv"), "--out", str(tmp_path / "s.json")]
    assert main(words) == 0
    words = [str(tmp_path / "t.csv"), "--schema", str(tmp_path / "s.json"), "--unreviewed-schema"]
    out = str(tmp_path / "o.csv")
    assert main(["synthesize", *words, "--rho", "5", "--out", out]) == 0
    made = pd.read_csv(out)
    assert [*made] == [*WIDE]
    assert (pd.to_datetime(made.work).dt.dayofweek >= 5).mean() < 0.01


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ([{**HOUR, "of": "size"}], "'size', which is no column with times"),
        ([{**HOUR, "of": "none"}], "'none', which is no column with times"),
        ([{**SEEN, "granularity": "hour"}, HOUR], "not needed: 'seen' has a code for each hour"),
        ([{**SEEN, "granularity": "day"}, DAY], "not needed: 'seen' has a code for each day"),
        ([{**SEEN, "granularity": "month", "format": "%Y-%m"}, DAY], "weekday' is not needed"),
        (
            [SEEN, DAY, {**DAY, "name": "day"}],
            "'day' and 'seen_weekday' are both the weekday of 'seen'",
        ),
    ],
)
def test_parts_of_no_use_are_refused(columns, words):
    with pytest.raises(SchemaError, match=words):
        schema_of(*columns)


def test_rules_and_tables_cannot_name_a_part():
    with pytest.raises(SchemaError, match="seen_hour"):
        schema_of(SEEN, HOUR, rules=("seen_hour >= 7",))
    with pytest.raises(DataError, match="'seen_hour' has the name of a part"):
        read_table(TABLE.assign(seen_hour=1), WHOLE)
    said = "'seen_hour' is the hour of 'seen': name 'seen'"
    with pytest.raises(SchemaError, match=said):
        schema_of(SEEN, HOUR, rules=("seen_hour = '07:00' -> size = 1",))
    with pytest.raises(InputError, match=said):
        Where.from_text("seen_hour = '07:00'", WHOLE.columns)
    with pytest.raises(SchemaError, match="missing markers of its own: write them in 'seen'"):
        schema_of(SEEN, {**HOUR, "missing": ["?"]})
    assert Schema.parse(json.loads(WHOLE.to_json())) == WHOLE
    with pytest.raises(DataError, match="has 0 of the 3 columns"):
        read_table(pd.DataFrame({"x": [1]}), WHOLE)


def test_a_moment_outside_that_is_missing_has_no_hour():
    narrow = {**SEEN, "max": "2023-06-30T23:59:59", "outside": "missing"}
    codes = read_table(TABLE, schema_of(narrow, HOUR, DAY)).columns
    gone = codes[0] == codes[0].max()
    assert gone.mean() > 0.4
    assert ((codes[1] == 24) == gone).all()
    assert ((codes[2] == 7) == gone).all()


def test_a_review_says_that_parts_are_measured_and_takes_days_as_limits_of_times():
    schema = propose(WIDE)
    (lines,) = (lines for topic, lines, _ in list_questions(schema) if topic == "limits")
    assert any("by week, with hour and weekday (occur" in line for line in lines)
    with pytest.raises(InputError, match=r"'seen_weekday' is the weekday of 'seen'\. Name 'seen'"):
        answer(schema, "publish", "seen_weekday")
    seen = answer(schema, "limits", "seen=2022-01-01..2024-12-31").column("seen")
    assert (str(seen.min), str(seen.max)) == ("2022-01-01 00:00:00", "2024-12-31 23:59:59")
    with pytest.raises(InputError, match="dates as seen=2020-01-31"):
        answer(schema, "limits", "seen=1.1.2022..31.12.2024")


@pytest.mark.slow
def test_no_neighbour_can_be_told_apart_by_its_hours():
    schema = schema_of(SEEN, HOUR, DAY, person="who")
    for described, options in ((WHOLE, {}), (schema, {"rows_per_person": 2})):
        report = audit(described, 1, pairs=5, rhos=(0.5,), sample_every=5, **options)
        assert report.findings == []


def test_an_audit_compares_with_a_table_without_rows():
    """The seventh pair has one row and none; tables without rows are given as codes."""
    day = {"name": "day", "type": "date", "min": "2024-01-01", "max": "2024-12-31",
           "granularity": "month", "missing": ["-"]}  # fmt: skip
    part = {"name": "weekday", "type": "part", "of": "day", "unit": "weekday"}
    schema = Schema.parse({"version": 1, "columns": [day, part]})
    report = audit(schema, 1, pairs=7, rhos=(0.5,), sample_every=20)
    assert (report.findings, report.moved > 0) == ([], True)


@pytest.mark.slow
def test_tables_of_a_set_have_parts(tmp_path):
    homes = pd.DataFrame({"home": np.arange(800), "seen": TABLE.seen[:800], "size": 1})
    visits = pd.DataFrame({"home": RNG.integers(0, 800, 1_600), "come": TABLE.seen[:1_600].array})
    come = [{**column, "name": column["name"].replace("seen", "come")} for column in (SEEN, HOUR)]
    columns = {"homes": [SEEN, DAY, OTHERS[1]], "visits": [come[0], {**come[1], "of": "come"}]}
    content = {
        "version": 1,
        "tables": {name: {"version": 1, "columns": own} for name, own in columns.items()},
        "keys": [{"child": "visits", "column": "home", "parent": "homes", "most": 4}],
    }
    schema = TableSet.parse(content)
    model = Synthesizer(rho=50, insecure_seed=1, beyond_limits=True, workers=1)
    made = model.fit({"homes": homes, "visits": visits}, schema=schema).sample(seed=1)
    assert [*made["homes"]] == ["home", "seen", "size"]
    hours, true = parts_of(made["visits"].come)[0], parts_of(visits.come)[0]
    assert abs((hours >= 20).mean() - (true >= 20).mean()) < 0.03
    assert (parts_of(made["homes"].seen)[1] == 5).mean() < 0.01  # none on Saturdays
    assert audit(schema, 1, pairs=3, rhos=(0.5,), sample_every=3).findings == []


def test_hours_are_free_where_a_moment_without_parts_is_missing():
    days = {"type": "date", "min": "2024-01-08", "max": "2024-01-14", "granularity": "year"}
    times = {**SEEN, "missing": [], "min": "2024-01-01T00:00:00", "max": "2024-01-14T23:59:59"}
    columns = [
        {**times, "name": "a", "granularity": "week"},
        {**days, "name": "b", "missing": [""]},
        *({**part, "name": f"a_{part['unit']}", "of": "a"} for part in (HOUR, DAY)),
        {"name": "n", "type": "integer", "min": 0, "max": 20},
    ]
    schema = Schema.parse({"version": 1, "columns": columns, "rules": ["n = b - a"]})
    table = pd.DataFrame({"a": ["06.01.2024 15:00:00"] * 21, "b": [""] * 21, "n": range(21)})
    codes = read_table(table, schema)
    for tie in schema.ruleset.ties:
        found = tuple(codes.columns[schema.names.index(name)] for name in tie.names)
        assert tie.allowed[found].all(), tie.names


def test_combinations_of_hours_and_weekdays_are_bounded_together():
    """Many pairs of times in a small schema do not fill the memory."""
    columns, rules = [], []
    for k in range(4):
        for name in (f"a{k}", f"b{k}"):
            columns += [{**SEEN, "name": name, "max": "2023-02-28T23:59:59"}]
            columns += [{**p, "name": f"{name}_{p['unit']}", "of": name} for p in (HOUR, DAY)]
        rules += [f"a{k} <= b{k}", f"b{k} <= a{k} + 4 hours"]
    ties = Schema.parse({"version": 1, "columns": columns, "rules": rules}).ruleset.ties
    assert sum(tie.allowed.size for tie in ties) < 3 * MOST_CELLS
    assert {f"a{k}" for k in range(4)} <= {name for tie in ties[16:] for name in tie.names}
