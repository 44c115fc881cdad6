"""What privacy costs (accounting) and the only places where privacy noise is drawn."""
