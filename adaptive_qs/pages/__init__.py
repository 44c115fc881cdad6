"""Self-contained HTML pages: one style, charts whose numbers stay text, nothing from a network."""
