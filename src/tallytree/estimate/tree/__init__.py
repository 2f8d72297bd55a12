"""Consistent counts on the tree of regions: the nearest ones, least squares, and the papers' ways down the levels."""
