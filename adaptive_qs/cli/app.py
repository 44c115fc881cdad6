"""The commands by name. Whatever is slow to import is imported by the command that runs."""

from __future__ import annotations

from functools import cached_property
from typing import Annotated, Any

import typer

import adaptive_qs
from adaptive_qs.cli.answer import answer, plan
from adaptive_qs.cli.audit import audit
from adaptive_qs.cli.evaluate import evaluate
from adaptive_qs.cli.ledger import ledger_app
from adaptive_qs.cli.output import emit
from adaptive_qs.cli.schema import schema_app
from adaptive_qs.cli.synthesize import sample, synthesize


class _Application(typer.Typer):
    """Commands that are made of their signatures at the first call, not at each."""

    @cached_property
    def _commands(self) -> Any:
        return typer.main.get_command(self)

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        """Run one command; whoever calls sees to the errors."""
        return self._commands(*arguments, **options)


app = _Application(
    help="Share a synthetic table, or answers with error bars, instead of a private table.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    epilog="Start with: python -m adaptive_qs synthesize --demo",
)


def _show_version(asked: bool) -> None:
    if asked:
        emit(f"adaptive-qs {adaptive_qs.__version__}")
        raise typer.Exit


@app.callback()
def _program(
    version: Annotated[
        bool,
        typer.Option(
            "--version", metavar="", help="Show the version.", callback=_show_version, is_eager=True
        ),
    ] = False,
) -> None:
    """Options of the program itself."""


app.command()(synthesize)
app.command()(sample)
app.command()(plan)
app.command()(answer)
app.command()(evaluate)
app.command()(audit)
app.add_typer(ledger_app, name="ledger")
app.add_typer(schema_app, name="schema")
