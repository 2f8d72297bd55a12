"""Tables of regions by category with both sums given, and rows that counts and `at_least` counts both tell of."""
