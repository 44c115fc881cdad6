"""The select-measure-reconstruct loop: it and `learn` alone see private counts and noise."""
