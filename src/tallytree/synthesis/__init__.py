"""Synthetic households: what to ask, models that answer it, and microdata drawn from them. All of it is public."""
