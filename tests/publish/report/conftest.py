"""Pages in a real browser, opened from disk without a network."""

import pytest

from tests.publish.report.browser import CHROMIUM, FLAGS


@pytest.fixture(scope="module")
def chromium():
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        yield browser
        browser.close()


@pytest.fixture
def opened(chromium):
    """A page from disk, with the network off; whatever its console says and whatever it asks for is a fault."""
    contexts, faults = [], []

    def opened(path, *, width=1280, **how):
        context = chromium.new_context(
            viewport={"width": width, "height": 900}, offline=True, accept_downloads=True, **how
        )
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: faults.append(message.text))
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on(
            "request",
            lambda asked: asked.url == path.as_uri() or asked.url.startswith("blob:") or faults.append(asked.url),
        )
        page.goto(path.as_uri())
        return page

    yield opened
    for context in contexts:
        context.close()
    assert not faults
