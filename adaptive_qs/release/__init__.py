"""What one run released: noisy measurements, how they were paid for, and tables from them."""
