"""The commands by name. What is slow to import is imported by the command that runs."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import cache
from importlib import import_module
from typing import Annotated, Any

import typer

import adaptive_qs
from adaptive_qs.cli.output import emit

COMMANDS = {
    "synthesize": "synthesize",
    "sample": "synthesize",
    "plan": "answer",
    "answer": "answer",
    "evaluate": "evaluate",
    "audit": "audit",
    "ledger": "ledger",
    "schema": "schema",
}
"""The module of each; those that have commands of their own are Typer applications there."""


def app(args: Sequence[str] | None = None, **options: Any) -> Any:
    """Run one command; whoever calls sees to the errors.

    Args:
        args: the command line, by default that of the process.
        options: for click.
    """
    words = sys.argv[1:] if args is None else args
    known = words and words[0] in COMMANDS
    return commands(words[0] if known else None)(args=args, **options)


@cache
def commands(only: str | None = None) -> Any:
    """The program with all commands, or with one: the modules of the others stay unread."""
    program = typer.Typer(
        help="Share a synthetic table, or answers with error bars, instead of a private table.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        epilog="Start with: python -m adaptive_qs synthesize --demo",
    )
    program.callback()(_program)
    for name in COMMANDS if only is None else [only]:
        module = import_module(f"adaptive_qs.cli.{COMMANDS[name]}")
        group = getattr(module, f"{name}_app", None)
        if group is None:
            program.command()(getattr(module, name))
        else:
            program.add_typer(group, name=name)
    return typer.main.get_command(program)


def _show_version(asked: bool) -> None:
    if asked:
        emit(f"adaptive-qs {adaptive_qs.__version__}")
        raise typer.Exit


def _program(
    version: Annotated[
        bool,
        typer.Option(
            "--version", metavar="", help="Show the version.", callback=_show_version, is_eager=True
        ),
    ] = False,
) -> None:
    """Options of the program itself."""
