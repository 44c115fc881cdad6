"""A ledger as JSON for auditors: everything that its hashes cover, and nothing private.

Left out are the key, which never is in the ledger, and the noisy answers of open runs, of which
the entries hold the hashes.
"""

from __future__ import annotations

import json

from adaptive_qs.ledger.book import LedgerBook


def exported(book: LedgerBook) -> str:
    """All entries; ``body`` is the exact text over which ``hash`` is computed."""
    entries = [
        {"number": row.number, "time": row.time, "body": row.body, "hash": row.hash.hex()}
        for row in book.rows()
    ]
    content = {
        "format": "adaptive-qs ledger",
        "version": 1,
        "ledger": book.identity,
        "hash": "SHA-256 over the hash before (first: 32 zero bytes), then number, time and body, "
        "each as UTF-8 after its length in bytes as 8 bytes, most significant first",
        "entries": entries,
    }
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"
