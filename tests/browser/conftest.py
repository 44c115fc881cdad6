"""One headless chromium for all browser tests, and pages in files for it to open."""

import os
import shutil

import pytest

from adaptive_qs.evaluation.evaluation import Promised, evaluation_page
from adaptive_qs.release.page import release_page
from adaptive_qs.synthesizer import Synthesizer
from adaptive_qs.table.schema import Schema

from ..evaluation.made import COLUMNS, HOSTILE, made_evaluation, made_schema, made_table, queries
from .seen import Seen

REQUIRED = "ADAPTIVE_QS_BROWSER"
"""With the value "required" a missing browser fails the tests instead of skipping them."""
ARGUMENTS = (
    "--no-sandbox --disable-gpu --disable-background-networking --disable-component-update "
    "--disable-sync --no-first-run"
)
WIDTHS = {"desktop": 1280, "phone": 360}


@pytest.fixture(scope="session")
def browser():
    """The system's chromium."""
    path = shutil.which("chromium")
    if path is None:
        message = "no chromium on this system: apt-get install chromium"
        if os.environ.get(REQUIRED) == "required":
            pytest.fail(message)
        pytest.skip(message)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=path, args=ARGUMENTS.split())
        yield chromium
        chromium.close()


@pytest.fixture(scope="session")
def files(tmp_path_factory):
    """The owner's report and the page of a release, with hostile names in both."""
    folder = tmp_path_factory.mktemp("pages")
    schema = made_schema()
    release = Synthesizer(rho=1.0, workload=2).fit(made_table(2_000), schema=schema).release_
    (folder / "release.html").write_text(release_page(release))
    report = evaluation_page(
        made_evaluation(schema, promised=Promised(release)), ("true.csv", HOSTILE)
    )
    (folder / "report.html").write_text(report)
    wide = [{"name": f"column {k}", "type": "integer", "min": 0, "max": 9} for k in range(24)]
    schema = Schema.parse({"version": 1, "columns": [*COLUMNS[1:2], *wide]})
    many = evaluation_page(
        made_evaluation(schema, utility=None, queries=queries()), ("true.csv", "made.csv")
    )
    (folder / "wide.html").write_text(many)
    return folder


@pytest.fixture(scope="session", params=["report", "release", "wide"])
def kind(request):
    """Which page."""
    return request.param


@pytest.fixture(scope="session", params=list(WIDTHS))
def seen(request, browser, files, kind):
    """Each page at each width, opened once."""
    opened = Seen(browser, files / f"{kind}.html", WIDTHS[request.param])
    yield opened
    opened.page.close()
