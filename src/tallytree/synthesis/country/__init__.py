"""A synthetic country: one model for the whole, and what tells its regions apart.

`levels` is the public tree as attributes of households. `asking` chooses tables by region and measures them on the
tree. `settling` makes one rate for each leaf region of them, from the top down, drawn to the parent's where they are
noise. `weighting` gives each leaf region its own weights of the model's components, so that these rates come out.
"""
