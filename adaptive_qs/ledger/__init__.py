"""The durable record of what was spent on one data set, and of every noisy answer it bought."""
