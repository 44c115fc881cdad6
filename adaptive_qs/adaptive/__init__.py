"""The select-measure-reconstruct loop: the only callers of private counts and of noise."""
