"""What is checked, each in an environment of its own: ``nox`` runs all but the benchmarks."""

import nox

nox.options.default_venv_backend = "uv|virtualenv"
nox.options.sessions = ["lint", "types", "docs", "tests"]


@nox.session
def tests(session: nox.Session) -> None:
    """The suite, or what is named after --."""
    session.install("--editable", ".[test]")
    session.run("pytest", *session.posargs)
    if not session.posargs:
        session.run("pytest", "-m", "slow")


@nox.session
def lint(session: nox.Session) -> None:
    """Style, and imports that point down the layers."""
    session.install("--editable", ".[dev]")
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    session.run("lint-imports")


@nox.session
def types(session: nox.Session) -> None:
    """Types, strictly."""
    session.install("--editable", ".[dev]")
    session.run("mypy")


@nox.session
def docs(session: nox.Session) -> None:
    """Generate the reference, build the site, then follow every page and notebook as a reader."""
    session.install("--editable", ".[docs,test]")
    session.run("python", "scripts/make_reference.py")
    session.run("mkdocs", "build", "--strict")
    session.run("pytest", "-m", "", "tests/docs", "tests/test_readme.py", *session.posargs)


@nox.session
def benchmarks(session: nox.Session) -> None:
    """Run the figures of the code and the quick assurance, or the script named after --."""
    session.install("--editable", ".[test]")
    if session.posargs:
        session.run("python", "-m", f"scripts.speed.{session.posargs[0]}", *session.posargs[1:])
    else:
        session.run("python", "-m", "scripts.speed.house")
        session.run("python", "-m", "scripts.speed.assurance", "--quick")
