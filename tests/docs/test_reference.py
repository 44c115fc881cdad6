"""The reference says what the program does."""

import json
import re

import pytest

from adaptive_qs.cli.entry import commands, main
from adaptive_qs.table.columns import COLUMN_TYPES
from adaptive_qs.workload import FAMILIES
from scripts import make_reference

from .snippets import PAGES, ROOT, Reader, read_json

REFERENCE = ROOT / "docs" / "reference"
FIELDS = REFERENCE / "json.md"
COMMANDS = {name.strip(): each for name, each in make_reference.leaves("", commands())}
OPTIONS = {name for command in COMMANDS.values() for p in command.params for name in p.opts}
COMPLETION = "--install-completion"
FOREIGN = {
    "--editable",
    "--help",
    "--version",
    "--seed",
    "--rows",
    "--out",
    "--patients",
    "--stays",
    COMPLETION,
}
FOREIGN |= {
    "--dashboard-address",
    "--resolution",
    "--protocol",
    "--drawn",
    "--nworkers",
    "--nthreads",
    "--memory-limit",
    "--local-directory",
    "--no-dashboard",
}
"""Options of other programs on the pages, and of ours that no command lists."""
MADE = ["--schema", "schema.json", "--epsilon", "1", "--json"]
COMPARED = ["evaluate", "visits.csv", "t.csv", "--schema", "schema.json", "--json"]
MODELS = ["--target", "reason", "--rule", "reason determines insured", "--disclose", "age"]
KEPT = ["--release", "l.zip", "--out", "lt.csv"]
LEDGERS = "v.ledger", "w.ledger"
RUNS = {
    "plan": [["plan", *MADE, "--public-rows", "200", "--workload", "pairs.json"]],
    "synthesize": [
        ["synthesize", "visits.csv", *MADE, "--out", "t.csv", "--release", "r.zip"],
        ["synthesize", "visits.csv", *MADE, *KEPT, "--ledger", "v.ledger", "--target", "age"],
    ],
    "sample": [["sample", "r.zip", "--out", "s.csv", "--json"]],
    "marginals": [["marginals", "r.zip", "--columns", "age", "--out", "m.csv", "--json"]],
    "dummy": [["dummy", "schema.json", "--json"]],
    "answer": [
        ["answer", "visits.csv", *MADE, "--out", "a.csv"],
        ["answer", "visits.csv", *MADE, "--out", "l.csv", "--ledger", "v.ledger"],
    ],
    "evaluate": [COMPARED, [*COMPARED, *MODELS], [*COMPARED, "--workload", "ranges.json"]],
    "ledger show": [["ledger", "show", "--ledger", name, "--json"] for name in LEDGERS],
    "ledger verify": [
        ["ledger", "verify", "--ledger", "v.ledger", "--json", "--release", name]
        for name in ("l.zip", "l.csv", "lt.csv")
    ],
    "audit": [["audit", *MADE, "--pairs", "1"]],
}


@pytest.mark.parametrize("name", make_reference.reference())
def test_generated_pages_are_up_to_date(name):
    written = (REFERENCE / name).read_text(encoding="utf-8")
    assert written == make_reference.reference()[name], "run python scripts/make_reference.py"


def test_every_key_of_the_formats_has_a_meaning():
    for name in ("schema.md", "workload.md"):
        rows = re.findall(r"^\| `(.+?)` \|.*\| (.*) \|$", make_reference.reference()[name], re.M)
        assert rows
        assert [key for key, meaning in rows if not meaning.strip()] == []


def test_every_object_of_the_formats_has_an_example_of_its_kind():
    objects = {}
    for kind in ("schema", "workload"):
        objects |= json.loads(make_reference.render(kind))["$defs"]
    assert make_reference.EXAMPLES.keys() == objects.keys()
    for name, example in make_reference.EXAMPLES.items():
        read_json(json.dumps(example))  # as the program would
        lists = (
            example[key] for key in ("generated", "rules", "columns", "parts") if key in example
        )
        *_, shown = next(lists)
        if name in ("Counted", "Ending"):
            shown = shown["counted"]
            shown = shown if name == "Counted" else shown["endings"][0]
        elif not (name.endswith(("Column", "Rule")) or name == "Part"):
            shown = shown["queries"]
        keys = objects[name]["properties"]
        assert shown.keys() <= keys.keys()
        kinds = keys.get("type", {})
        assert shown.get("type") in kinds.get("enum", [kinds.get("const")])


@pytest.mark.parametrize(
    ("page", "section", "registry"),
    [
        ("guides/schema.md", None, {*COLUMN_TYPES}),
        ("guides/answer.md", "What can be requested", {*FAMILIES}),
    ],
)
def test_tables_of_column_types_and_query_families_list_the_registry(page, section, registry):
    text = (ROOT / "docs" / page).read_text()
    text = text if section is None else text.split(f"\n## {section}\n")[1]
    text = text.split("\n## ")[0]
    first_column = re.findall(r"^\| (`\w+`(?:, `\w+`)*) \|", text, re.M)
    listed = {name for cell in first_column for name in re.findall(r"`(\w+)`", cell)}
    assert listed - {"queries"} == registry


def test_every_command_has_a_guide():
    verbs = {name.split()[0] for name in COMMANDS}
    assert {page.stem for page in (ROOT / "docs" / "guides").glob("*.md")} == verbs


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_option_named_on_a_page_exists(page):
    text = page.read_text().partition("\n### Removed\n")[0]
    named = set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", text))
    assert named - OPTIONS - FOREIGN == set()


def options_in(text):
    return set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", text))


def flags_of(command):
    return {flag for each in command.params for flag in (*each.opts, *each.secondary_opts)}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_has_every_option_that_its_help_names(name):
    command = COMMANDS[name]
    texts = [command.help or "", *(getattr(each, "help", None) or "" for each in command.params)]
    assert set().union(*map(options_in, texts)) - flags_of(command) == set()


CURRENT = [page for page in PAGES if page.name != "CHANGELOG.md"]
"""Pages that say what there is, and not what there was."""


@pytest.mark.parametrize("page", CURRENT, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_command_on_a_page_has_every_option_that_it_is_given(page):
    text = re.sub(r"\\\n\s*", " ", page.read_text())
    longest_first = "|".join(sorted(COMMANDS, key=len, reverse=True))
    called = re.compile(rf"(?:adaptive-qs |`)({longest_first})\b([^`\n|;&<>)]*)")
    for name, rest in called.findall(text):
        assert options_in(rest) - flags_of(COMMANDS[name]) - {"--help"} == set(), (name, rest)


def help_of(verb, flag):
    (found,) = (each.help for each in COMMANDS[verb].params if flag in each.opts)
    return found


@pytest.mark.parametrize("verb", ["plan", "answer"])
def test_the_help_of_queries_names_those_that_are_taken(verb, tmp_path, capsys):
    schema, table = tmp_path / "s.json", tmp_path / "t.csv"
    schema.write_text('{"a": 4, "b": 4}')
    table.write_text("a,b\n" + "1,2\n3,0\n" * 9)
    offered, custom = help_of(verb, "--queries").split("; ")
    named = re.findall(r"[a-z]+", offered.removeprefix("With --ways: ").replace(" or ", " "))
    assert set(named) == {*FAMILIES} - {"custom"}
    for name in named:
        ways = "2" if name in ("affine", "absdiff") else "1"  # of pairs
        words = [verb, "--schema", str(schema), "--ways", ways, "--queries", name, "--epsilon", "1"]
        if verb == "answer":
            words += [str(table), "--out", str(tmp_path / f"{name}.csv")]
        assert main(words) == 0, name
    assert "custom ones need a --workload file" in custom
    capsys.readouterr()
    assert main(["plan", "--schema", str(schema), "--queries", "custom"]) == 2
    assert "or a --workload file" in capsys.readouterr().err


@pytest.fixture(scope="module")
def printed(tmp_path_factory):
    """What each command prints with --json: the paths of its fields."""
    reader = Reader(tmp_path_factory.mktemp("json"))
    make = "python docs/example/make_visits.py --rows 300"
    reader.shell(f"{make}; cp docs/example/schema.json .")
    ranges = {"version": 1, "parts": [{"attributes": [["age"]], "queries": "range"}]}
    (reader.folder / "ranges.json").write_text(json.dumps(ranges))
    pairs = {**ranges, "parts": [{"ways": [2]}, *ranges["parts"]]}
    (reader.folder / "pairs.json").write_text(json.dumps(pairs))
    for name in LEDGERS:
        reader.program(["ledger", "create", "--ledger", name, "--epsilon", "3"])
    reader.shell("mkdir copy && cp w.ledger w.ledger.mark copy")
    reader.program(["answer", "visits.csv", *MADE, "--out", "lost.csv", "--ledger", "w.ledger"])
    reader.shell("rm -f w.ledger* && cp copy/* .")
    reader.program(["ledger", "restore", "--ledger", "w.ledger", "--release", "lost.csv"])
    found = {}
    for command, calls in RUNS.items():
        found[command] = set()
        for call in calls:
            code, said = reader.program(call)
            assert code == 0, said
            found[command] |= set(paths(json.loads(said[said.index("{") :])))
    return found


def paths(content, place=""):
    """The paths of all values in a JSON value that hold no further ones."""
    if isinstance(content, dict) and content:
        for key, value in content.items():
            yield from paths(value, f"{place}.{key}" if place else key)
    elif isinstance(content, list) and content:
        for value in content:
            yield from paths(value, f"{place}[]")
    else:
        yield place


def documented(command):
    """The fields that the page lists for a command."""
    section = FIELDS.read_text().split(f"\n## {command}\n")[1].split("\n## ")[0]
    cells = re.findall(r"^\| (`.+?`) \|", section, re.M)
    return [field for cell in cells for field in re.findall(r"`(.+?)`", cell)]


SOMETIMES = "findings[]", "impossible.", "contradictions[]", "group_means.groups[]", "odd_rows[]"
"""Fields of lists that can be empty."""


@pytest.mark.slow
@pytest.mark.parametrize("command", RUNS)
def test_the_page_of_json_output_lists_the_fields_that_are_printed(command, printed):
    fields = documented(command)
    known = [re.compile(re.escape(field).replace(r"\*", r"[^.\[\]]+") + "$") for field in fields]
    parents = {re.split(r"\.|\[\]", field)[0] for field in fields}
    strange = {p for p in printed[command] if not any(k.match(p) for k in known)}
    assert strange <= parents  # an object or a list that is null or empty this time
    unseen = {f for f, k in zip(fields, known) if not any(map(k.match, printed[command]))}
    assert {f for f in unseen if not f.startswith(SOMETIMES)} == set()


SECTION = FIELDS.read_text().split("\n## What depends on the rows\n")[1].split("\n## ")[0]
OWNER_ONLY = re.findall(r"^\| (`.+?) \| (.+) \|$", SECTION, re.M)


@pytest.mark.parametrize("command", RUNS)
def test_the_page_says_of_every_command_which_fields_depend_on_the_rows(command):
    (said,) = [text for names, text in OWNER_ONLY if f"`{command}`" in names]
    fields = re.findall(r"`(.+?)`", said)
    assert set(fields) <= set(documented(command))
    assert said.startswith("nothing") or fields or said == "everything"
    if command in ("synthesize", "answer"):
        measured = [f for f in documented(command) if re.search("second|memory|time", f)]
        assert fields == measured != []


def test_every_command_with_json_output_is_on_the_page():
    with_json = {
        name.strip() for name, c in COMMANDS.items() if any("--json" in p.opts for p in c.params)
    }
    assert with_json == set(RUNS)
