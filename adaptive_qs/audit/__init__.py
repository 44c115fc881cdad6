"""Whether neighbouring tables really lead to the same bytes when the noise is the same."""
