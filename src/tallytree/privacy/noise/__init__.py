"""Exact noise, from random words up: `tallytree.privacy` says what it promises and in which order to read it."""
