"""Which tables the promise compares, and what its kind is called; named in every output."""

UNIT = "one row"
NEIGHBOURS = "add or remove one row"


def zcdp_name(delta: float) -> str:
    """The kind of zCDP where so much of δ was spent on discovering values.

    Bun and Steinke 2016, section 8: with any of it the promise of zCDP alone does not hold.
    """
    return f"{delta:.3g}-approximate zCDP" if delta else "zCDP"
