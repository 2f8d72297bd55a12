"""Estimates that are settled from the top: what is believed of each region, and whole numbers from the root down."""
