"""The made-up country of `tallytree demo`."""
