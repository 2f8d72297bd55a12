"""One region by itself: the monotone, sorted or non-negative whole numbers nearest to noisy ones."""
