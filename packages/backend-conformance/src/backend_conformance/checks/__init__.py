"""The checks, a group in each file. Only workers import them."""
