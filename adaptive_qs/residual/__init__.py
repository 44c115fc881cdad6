"""Residual algebra: bases, in-axis transforms, and the model that reconstructs every marginal."""
