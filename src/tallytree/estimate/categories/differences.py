"""Least squares from noisy numbers and noisy differences of neighbours: a tridiagonal system for each row."""

from __future__ import annotations

from tallytree.arrays import Floats


def tridiagonal_least_squares(
    values: Floats, variance: Floats, differences: Floats, spread: Floats
) -> tuple[Floats, Floats]:
    """The T with the least Σ (T[s] − values)² / variance + Σ (T[s] − T[s + 1] − differences)² / spread; and variances.

    All arrays are `[rows, sizes]`; T beyond the last size is 0. With a[s] = 1 / variance and d[s] = 1 / spread the
    normal equations have a[s] + d[s] + d[s − 1] on the diagonal and −d[s] beside it. Two eliminations, from the front
    and from the back, leave the pivots f[s] and b[s]; the variance of T[s] is 1 / (f[s] + b[s] − diagonal[s]).

    >>> import numpy as np
    >>> one = np.ones((1, 1))
    >>> tridiagonal_least_squares(4 * one, one, 2 * one, one)
    (array([[3.]]), array([[0.5]]))
    """
    own, link = 1.0 / variance, 1.0 / spread
    diagonal = own + link
    diagonal[:, 1:] += link[:, :-1]
    right = own * values + link * differences
    right[:, 1:] -= link[:, :-1] * differences[:, :-1]
    sizes = values.shape[1]
    front, back, solved = diagonal.copy(), diagonal.copy(), right.copy()
    for size in range(1, sizes):
        ratio = link[:, size - 1] / front[:, size - 1]
        front[:, size] -= ratio * link[:, size - 1]
        solved[:, size] += ratio * solved[:, size - 1]
    for size in range(sizes - 2, -1, -1):
        back[:, size] -= link[:, size] ** 2 / back[:, size + 1]
    solved[:, -1] /= front[:, -1]
    for size in range(sizes - 2, -1, -1):
        solved[:, size] = (solved[:, size] + link[:, size] * solved[:, size + 1]) / front[:, size]
    return solved, 1.0 / (front + back - diagonal)
