from functools import partial

import pytest

from adaptive_qs.generate.rows import SynthesisSettings


@pytest.fixture(autouse=True)
def quick_tables(monkeypatch):
    """Fit tables with few rows: these tests are not about their quality."""
    few = partial(SynthesisSettings, fit_rows=500)
    monkeypatch.setattr("adaptive_qs.release.release.SynthesisSettings", few)
