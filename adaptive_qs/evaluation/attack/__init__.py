"""A membership-inference attack on the released table, beside the bound that was promised."""
