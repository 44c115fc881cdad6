"""The private key of a ledger, and what it hides: which table a run read.

A plain hash of a table would let anyone who sees the ledger test guesses of the whole table. So the
hash is keyed, and the key lies in a file of its own beside the ledger that is never exported.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from collections.abc import Iterable
from pathlib import Path

from adaptive_qs.data.partial import create_partial, remove_stale, sync_folder
from adaptive_qs.errors import LedgerError

KEY_BYTES = 32


def key_path(ledger: str | Path) -> Path:
    """Where the key of a ledger lies; the same whatever links lead to the ledger."""
    return Path(f"{os.path.realpath(ledger)}.key")


def keyed_hash(ledger: str | Path, chunks: Iterable[bytes], make: bool = True) -> str:
    """HMAC-SHA256 of some bytes under the ledger's key.

    Args:
        ledger: its path.
        chunks: the bytes.
        make: make a key where there is none; without it nothing hashed before can be recognised.

    Raises:
        LedgerError: the key is missing, or cannot be read or made.
    """
    path = key_path(ledger)
    if not make and not path.exists():
        raise LedgerError(
            f"{path}: the key that recognises tables is missing: restore it, or give the "
            "interrupted run up with adaptive-qs ledger close"
        )
    digest = hmac.new(_key(path), digestmod=hashlib.sha256)
    for chunk in chunks:
        digest.update(chunk)
    return digest.hexdigest()


def _key(path: Path) -> bytes:
    try:
        remove_stale(path)
        if not path.exists():
            _make(path)
        key = bytes.fromhex(path.read_text().strip())
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "not a key"
        raise LedgerError(
            f"{path}: the ledger's key cannot be read or made ({reason.lower()}): mend that, or "
            "remove the file if no interrupted run is to be resumed"
        ) from None
    if len(key) != KEY_BYTES:
        raise LedgerError(f"{path}: is not a ledger's key: restore it")
    return key


def _make(path: Path) -> None:
    """Write a new key, readable by its owner only, whole or not at all."""
    handle, temporary = create_partial(path)
    try:
        with os.fdopen(handle, "w") as file:
            file.write(secrets.token_hex(KEY_BYTES) + "\n")
            file.flush()
            os.fsync(file.fileno())
            os.link(temporary, path)
    except FileExistsError:
        pass  # another process was faster
    finally:
        temporary.unlink(missing_ok=True)
    sync_folder(path.parent)
