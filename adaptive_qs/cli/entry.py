"""From a command line to an exit code: one line for every error, and never a cell value."""

from __future__ import annotations

import errno
import gc
import inspect
import os
import signal
import socket
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from importlib import import_module
from types import FrameType
from typing import Annotated, Any

import typer

import adaptive_qs
from adaptive_qs.cli import io
from adaptive_qs.cli.io import PipeClosed, Stopped, emit, fail, spent
from adaptive_qs.cli.options import parsed
from adaptive_qs.errors import AdaptiveQsError, InputError, ResourceExceeded, reason

COMMANDS = {
    "synthesize": "synthesize", "sample": "sample", "marginals": "sample", "plan": "plan",
    "answer": "answer", "evaluate": "evaluate", "audit": "audit", "ledger": "ledger",
    "schema": "schema", "dummy": "sample",
}  # fmt: skip
"""Module of each command, imported when it runs; a group has its ``COMMANDS`` there."""
DEBUG_VARIABLE = "ADAPTIVE_QS_DEBUG"
"""Environment variable that enables tracebacks. They can show private values."""

PATIENCE_SECONDS = 1.5
"""Seconds from a signal until the process ends even if it still works."""
_LINE_SECONDS = 0.3
"""Seconds to write the last line, since its reader can be blocked."""
_FORCED = (
    "stopped before the end, without cleaning up: count any budget that the run had as spent "
    "(--resume continues a run that has a ledger)"
)

_USAGE_ERROR: Any = typer.BadParameter.__base__  # typer exports its subclasses only


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command.

    Returns:
        0 done, 2 usage or bad input, 3 budget refused, 4 resource refused (each before any budget
        is spent), 5 a criterion of the owner is not met, 1 own fault or any failure after it is
        spent, 128 + n stopped by signal n.
    """
    debug = bool(os.environ.get(DEBUG_VARIABLE))
    _open_streams()
    with _signals(), _rare_collections(), warnings.catch_warnings(), io.at_end:
        if not debug:
            warnings.simplefilter("ignore")
        try:
            command = parse(sys.argv[1:] if arguments is None else arguments)
            code = command() if callable(command) else command
            sys.stdout.flush()
            return code if isinstance(code, int) else 0
        except AdaptiveQsError as error:
            return _broken_off(error) or _failed(error, str(error), error.exit_code)
        except _USAGE_ERROR as error:
            if error.format_message():  # otherwise the help has just been shown
                fail(_usage_line(error))
            return 2
        except MemoryError as error:
            advice = "request fewer ways, declare coarser bins, or lower --max-memory"
            return _failed(error, f"out of memory: {advice}", ResourceExceeded.exit_code)
        except Stopped as stop:
            fail(f"stopped before the end: {spent(stop) or 'no output was written'}")
            return stop.exit_code
        except KeyboardInterrupt:  # under another handler of SIGINT than Python's and ours
            fail("stopped before the end")
            return 128 + signal.SIGINT
        except (PipeClosed, BrokenPipeError):
            with suppress(OSError, ValueError):  # the interpreter must not flush into the pipe
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 128 + 13
        except SystemExit as stop:
            return stop.code if isinstance(stop.code, int) else 1
        except Exception as error:  # noqa: BLE001  (its message may quote private values)
            if debug:
                traceback.print_exc()
            return _broken_off(error) or _failed(error, *_explain(error))


def parse(words: Sequence[str]) -> Callable[[], int | None] | int:
    """Return the requested command, or an exit code if nothing is left to do (--help).

    Raise AdaptiveQsError if help cannot be printed, or shell completion cannot be installed.
    """
    program = commands(words[0] if words and words[0] in COMMANDS else None)
    try:
        found: Callable[[], int | None] | int = program.main(
            args=list(words), prog_name=io.PROGRAM, standalone_mode=False
        )
    except BrokenPipeError:
        raise
    except OSError as error:
        if "--install-completion" not in words:
            raise AdaptiveQsError(f"stdout cannot be written ({error.strerror})") from None
        raise InputError(
            f"Completion cannot be installed in the home folder ({reason(error)}). Put the output "
            "of --show-completion where your shell looks for completions."
        ) from None
    return found


@cache
def commands(only: str | None = None) -> Any:
    """Build the program with all commands, or with one without importing the others."""
    program = typer.Typer(
        help="Share a synthetic table, or answers with error bars, instead of a private table.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        epilog=f"Start with: {io.PROGRAM} synthesize --demo",
    )
    program.callback()(_program)
    for name in COMMANDS if only is None else [only]:
        module = import_module(f"adaptive_qs.cli.{COMMANDS[name]}")
        if hasattr(module, name):
            command = getattr(module, name)
            program.command(help=_help_text(command))(parsed(command))
            continue
        group = typer.Typer(help=module.HELP, no_args_is_help=True)
        for command in module.COMMANDS:
            title = command.__name__.strip("_").replace("_", "-")
            group.command(title, help=_help_text(command))(parsed(command))
        program.add_typer(group, name=name)
    return typer.main.get_command(program)


def _help_text(command: Callable[..., None]) -> str:
    """Return the docstring with each paragraph on one line, which the terminal breaks."""
    paragraphs = (inspect.getdoc(command) or "").split("\n\n")
    return "\n\n".join(" ".join(each.split()) for each in paragraphs)


def _show_version(requested: bool) -> None:
    if requested:
        emit(f"{io.PROGRAM} {adaptive_qs.__version__}")
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


def _broken_off(error: BaseException) -> int:
    """Return the exit code of a command that a signal ended; 0 if none came."""
    if (number := io.received_signal()) is None:
        return 0
    fail(f"stopped before the end: {spent(error) or 'no output was written'}")
    return 128 + number


def _failed(error: BaseException, message: str, code: int) -> int:
    """Write the reason and the state of the budget; return 1 if budget was spent."""
    paid_for = spent(error)
    fail(f"{message.removesuffix('.')}; {paid_for}" if paid_for else message)
    return 1 if paid_for else code


@contextmanager
def _signals() -> Iterator[None]:
    """Unwind the stack at SIGINT, SIGTERM and SIGHUP, so that temporary files are removed.

    A SIGINT or SIGHUP that is ignored, as in background jobs and under nohup, stays ignored.
    """
    io.forget()

    def stop(number: int, _: FrameType | None) -> None:
        io.request(number)

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    said = sys.unraisablehook

    def unraisable(lost: sys.UnraisableHookArgs) -> None:
        if not issubclass(lost.exc_type, Stopped):  # that one is remembered
            said(lost)

    sys.unraisablehook = unraisable
    previous = {signal.SIGTERM: signal.signal(signal.SIGTERM, stop)}
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        previous[signal.SIGINT] = signal.signal(signal.SIGINT, stop)
    if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) is signal.SIG_DFL:
        previous[signal.SIGHUP] = signal.signal(signal.SIGHUP, stop)
    try:
        with _deadline(previous):
            yield
    finally:
        sys.unraisablehook = said
        for number, handler in previous.items():
            signal.signal(number, handler)


@contextmanager
def _rare_collections() -> Iterator[None]:
    """Collect garbage less often, since imports and compilers create many lasting objects."""
    before = gc.get_threshold()
    gc.set_threshold(50_000, 50, 1_000)
    try:
        yield
    finally:
        gc.set_threshold(*before)


@contextmanager
def _deadline(numbers: Collection[int]) -> Iterator[None]:
    """End the process if the block still runs ``PATIENCE_SECONDS`` after one of these signals.

    Python cannot handle a signal while a library computes. Ending the process is as safe as a
    crash: an output appears whole or not at all, a ledger survives, and a later run removes
    temporary files.
    """
    heard, notify = socket.socketpair()
    notify.setblocking(False)
    over = threading.Event()

    def watch() -> None:
        with heard:
            while (received := heard.recv(1)) and received[0] not in numbers:
                pass
        if received and not over.wait(PATIENCE_SECONDS):
            try:
                line = threading.Thread(target=fail, args=(_FORCED,), daemon=True)
                line.start()
                line.join(_LINE_SECONDS)
            finally:
                os._exit(128 + received[0])

    previous = signal.set_wakeup_fd(notify.fileno(), warn_on_full_buffer=False)
    try:
        with suppress(RuntimeError):  # the system starts no thread: signals still unwind the stack
            threading.Thread(target=watch, daemon=True).start()
        yield
    finally:
        over.set()
        signal.set_wakeup_fd(previous)
        notify.close()


def _usage_line(error: Any) -> str:
    message = " ".join(error.format_message().split())
    context = getattr(error, "ctx", None)
    command = context.command_path if context else io.PROGRAM
    return f"{message}{'' if message[-1:] in '.?' else '.'} See {command} --help."


def _explain(error: Exception) -> tuple[str, int]:
    """Return a line and an exit code; of a bug the place, without the message of the error."""
    try:
        os.getcwd()
    except OSError:
        if isinstance(error, OSError):
            return "the working folder is gone: change to a folder that exists", 2
    if isinstance(error, ImportError | OSError) and _lacks_memory(error):
        return "a library cannot be loaded in this memory: raise the limit (ulimit -v)", 4
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if "adaptive_qs" in frame.filename]
    place = f" at {os.path.basename(own[-1].filename)}:{own[-1].lineno}" if own else ""
    return (
        f"internal error ({type(error).__name__}{place}): this is a bug, please report it; "
        f"{DEBUG_VARIABLE}=1 shows a traceback, which may hold private values"
    ), 1


def _lacks_memory(error: BaseException | None) -> bool:
    """Return whether an error or one of its causes reports that memory ran out."""
    while error is not None:
        if "failed to map segment" in str(error) or getattr(error, "errno", None) == errno.ENOMEM:
            return True
        error = error.__cause__ or error.__context__
    return False


def _open_streams() -> None:
    """Open the null device for closed standard streams, so that no other file gets their number."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest number that is free
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
