"""The public schema, and private rows turned into integer codes and counts."""
