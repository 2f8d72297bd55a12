"""Plain English: what people read is held to the rules of `tests.prose`."""

from collections import Counter

import pytest

from tests import prose
from tests.prose import Text, breaches, messages, sentences, texts

# How many breaches there may be, by kind of text: lower these numbers, do not raise them.
MOST = {"page": 0, "docstring": 0, "message": 0, "help": 0}


def found_in(text, kind="page"):
    return [rule for rule, _ in breaches(Text(kind, "here", text))]


def test_no_kind_of_text_breaks_more_rules_than_it_may():
    found = Counter(text.kind for text in texts() for _ in breaches(text))
    over = {kind: number for kind, number in found.items() if number > MOST[kind]}
    assert not over, f"`python -m tests.prose breaches` lists them: {over}"


@pytest.mark.parametrize(
    "text",
    [
        "The id is told to the ledger.",
        "Whoever comes or goes leaves it as it is.",
        "Numbers are whole and not negative.",
        "An area that is no region.",
        "Leaves borrow from the regions above.",
    ],
)
def test_words_of_our_own_are_found(text):
    assert len(found_in(text)) == 1
    assert found_in(text, "docstring")


@pytest.mark.parametrize(
    "text",
    [
        "Counts are no longer than needed.",
        "The name `settled` is code.",
        "All counts are non-negative integers.",
    ],
)
def test_plain_sentences_pass(text):
    assert found_in(text) == []


def test_long_sentences_are_found_on_pages_and_in_help_only():
    text = f"{'word ' * 36}end."
    assert found_in(text) == ["a sentence of 37 words"]
    assert found_in(text, "docstring") == []
    assert len(sentences("One sentence. Another one: with a colon.")) == 2


def test_messages_are_strings_of_several_words_that_are_not_docstrings(tmp_path):
    path = tmp_path / "module.py"
    path.write_text('"""What it does here."""\nNAME = "one"\nERROR = f"the file {NAME} is missing here"\n')
    assert list(messages(path)) == [(3, "the file … is missing here")]


def test_every_kind_of_text_is_read():
    assert {text.kind for text in prose.texts()} == set(MOST)
