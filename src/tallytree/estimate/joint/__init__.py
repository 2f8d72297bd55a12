"""All levels estimated in one problem: counts and `at_least` counts that add up, near the noisy ones."""
