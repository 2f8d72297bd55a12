"""What tests in a browser share: the program, its flags, and the marks of these tests."""

import shutil

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
IN_BROWSER = [
    pytest.mark.slow,
    pytest.mark.xdist_group("chromium"),
    pytest.mark.skipif(
        CHROMIUM is None,
        reason="NOT TESTED IN A BROWSER: there is no Chromium; install it with: sudo apt-get install chromium",
    ),
]
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)
