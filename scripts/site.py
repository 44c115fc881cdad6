"""MkDocs hook: add the pages outside `docs/` and the API reference to the documentation site."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

import adaptive_qs
from adaptive_qs.run.options import AnswerOptions, PlanOptions, SynthesizeOptions, read_options

ROOT = Path(__file__).parents[1]
PROJECT_PAGES = ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")
"""Pages in the root of the repository, shown under `project/`."""
OPTIONS = {"Synthesizer": SynthesizeOptions, "answer": AnswerOptions, "plan": PlanOptions}
"""The public names that have options, each with its dataclass."""
ROLE = re.compile(r":(?:meth|class|func|attr|data|mod):<code>~?([^<]+)</code>")
"""A role of reStructuredText in the HTML of a docstring."""
LINK = re.compile(r"\[([^\]]*)\]\(([^)\s:#]+)(#[^)\s]*)?\)")
"""A Markdown link to a file of the repository: text, path, fragment."""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the project's pages and one page with all public names to the site."""
    for name in PROJECT_PAGES:
        text = (ROOT / name).read_text(encoding="utf-8")
        files.append(File.generated(config, f"project/{name.lower()}", content=text))
    files.append(File.generated(config, "reference/api.md", content=api_reference()))
    return files


def api_reference() -> str:
    """Return a page that shows the docstring of every public name."""
    parts = ["# Python API\n\nThe public names of `adaptive_qs`.\n"]
    for name in sorted(adaptive_qs.__all__):
        value = getattr(adaptive_qs, name)
        place = f"::: {value.__module__}.{value.__qualname__}"
        options = f"    options:\n      heading: adaptive_qs.{name}\n      toc_label: {name}\n"
        parts.append(f"{place}\n{options}")
        if (model := OPTIONS.get(name)) is not None:
            parts.append(f"Options of `{name}`, each a keyword:\n\n{options_table(model)}\n")
    return "\n".join(parts)


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Show roles of docstrings, such as :meth:`sample`, as plain code."""
    return ROLE.sub(lambda match: f"<code>{match[1].rpartition('.')[2]}</code>", html)


def options_table(model: type) -> str:
    """Return a table of the options of a dataclass, with their defaults and meanings."""
    rows = [
        f"| `{each.name}` | `{each.default!r}` | {each.meaning} |" for each in read_options(model)
    ]
    return "\n".join(["| option | default | meaning |", "| --- | --- | --- |", *rows])


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Direct links to files outside `docs/` to the site's pages or to the repository."""
    name = page.file.src_uri
    source = Path("docs") / name
    if name.startswith("project/"):
        names = {each.lower(): each for each in PROJECT_PAGES}
        source = Path(names.get(name.removeprefix("project/"), "README.md"))

    def direct(match: re.Match[str]) -> str:
        text, path, fragment = match[1], match[2], match[3] or ""
        target = posixpath.normpath(posixpath.join(source.parent.as_posix(), path))
        site = target.removeprefix("docs/")
        if target in PROJECT_PAGES:
            site = f"project/{target.lower()}"
        elif not target.startswith("docs/") or files.get_file_from_path(site) is None:
            return f"[{text}]({config.repo_url}/blob/main/{target})" if config.repo_url else text
        start = posixpath.dirname(name)
        return f"[{text}]({posixpath.relpath(site, start or '.')}{fragment})"

    return LINK.sub(direct, markdown)
