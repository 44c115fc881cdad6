"""What a model learns from the synthetic table, judged on true rows."""
