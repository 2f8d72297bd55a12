"""Exact noise: draws, their thresholds and the generator. Read `draws` first; it says what is below it."""
