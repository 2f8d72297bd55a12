"""The papers' experiments and figures, remade. NOT PRIVATE, and not part of the package."""
