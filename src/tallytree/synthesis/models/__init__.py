"""Models of households: what they are fitted to, how they answer, and how households are drawn from them."""
