"""Property tests run the same cases every time, and the first call of a kernel may take long to compile."""

import pytest
from hypothesis import settings

from tests.real_data import SOURCES, made_up, real
from tests.shared_kernels import compile_once

settings.register_profile("tallytree", deadline=None, derandomize=True)
settings.load_profile("tallytree")
compile_once()


def pytest_collection_modifyitems(items):
    """Tests of the command come last: its processes then find kernels that others have compiled."""
    items.sort(key=lambda item: "command" in item.path.parts)


@pytest.fixture(scope="session", params=SOURCES)
def public_file(request, tmp_path_factory):
    """From the name of a public data set's file to its path: the real one, or a small made-up one of the same form."""
    folder = tmp_path_factory.mktemp("public")
    return real if request.param == "real" else lambda name: made_up(name, folder)
