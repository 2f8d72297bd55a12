"""Property tests run the same cases every time, and the first call of a kernel may take long to compile."""

from hypothesis import settings

settings.register_profile("tallytree", deadline=None, derandomize=True)
settings.load_profile("tallytree")
