"""The select-measure-reconstruct loop: it and `learn` alone see private counts and noise."""

LEVELS = ("auto", "off")
"""Whether marginals are offered over groups of codes too: where that may pay, or never."""
