"""Synthetic households: the model, how it is fitted, its files and its checks."""
