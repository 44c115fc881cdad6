"""HDMM: data-independent strategies for unions of product queries (McKenna et al.)."""
