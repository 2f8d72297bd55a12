"""Synthetic households: the value, how it is made, its files and its checks."""
