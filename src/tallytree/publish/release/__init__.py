"""Releases of counts: the value, how it is made, its files, its error bars, questions and checks."""
