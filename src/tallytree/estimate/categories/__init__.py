"""Tables of regions by category with both sums given, and least squares where several margins were measured."""
