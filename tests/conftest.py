"""Property tests run the same cases every time, and the first call of a kernel may take long to compile."""

import pytest
from hypothesis import settings

from tests.real_data import REAL_DATA, SOURCES, made_up, real
from tests.shared_kernels import compile_once

settings.register_profile("tallytree", deadline=None, derandomize=True)
settings.load_profile("tallytree")
compile_once()


def pytest_collection_modifyitems(items):
    """Drop tests of absent data, and put tests of the command last: other tests then compile the kernels it needs."""
    if not REAL_DATA:
        items[:] = [item for item in items if item.get_closest_marker("real_data") is None]
    items.sort(key=lambda item: "command" in item.path.parts)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Give each file, or `xdist_group` of tests, to one worker, so that what its fixtures build is built once."""
    from xdist.scheduler import LoadGroupScheduling

    class LoadFilesOrGroups(LoadGroupScheduling):
        def _split_scope(self, nodeid):
            group = super()._split_scope(nodeid)
            return nodeid.split("::")[0] if group == nodeid else group

    return LoadFilesOrGroups(config, log) if config.getoption("dist") == "loadgroup" else None


@pytest.fixture(scope="session", params=SOURCES)
def public_file(request, tmp_path_factory):
    """A function from the name of a public data set's file to its path: a small made-up file, or the real one."""
    folder = tmp_path_factory.mktemp("public")
    return real if request.param == "real" else lambda name: made_up(name, folder)
