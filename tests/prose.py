"""What people read in this project, and rules of plain English that a program can check.

`python -m tests.prose` prints all messages of the package; `python -m tests.prose breaches` prints what breaks a rule.
"""

import ast
import re
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "tallytree"
PAGES = [
    page
    for page in sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
    if page.name != "CHANGELOG.md" and "_build" not in page.parts
]
LONGEST_SENTENCE = 35  # words

# Words of our own and inverted patterns, each with what to write instead.
STOP_LIST = {
    r"\b(?:is|are|was|were|be|been) told\b": "say who tells whom, or 'known', 'stated'",
    r"\bwhoever\b": "anyone who",
    r"\bwhatever (?!reason|the reason)": "any",
    r"\bby itself\b": "alone, separately",
    r"\bof which\b": "split the sentence",
    r"\bbeyond doubt\b": "very likely",
    r"\bwhole and not negative\b|\bwhole numbers\b": "non-negative integers, integers",
    r"\bsettl(?:e|es|ed|ing)\b": "estimate from the top down, fix, commit",
    r"\bborrow(?:s|ed|ing)?\b": "shrink, shrinkage",
    r"\bbelie(?:f|fs|ve|ves|ved)\b": "posterior",
    r"\bby lot\b|\blots\b": "at random, random selection",
    r"\bthe middle one\b": "median",
    r"\bstand(?:s|ing)? out\b": "differ significantly",
    r"\bmade whole\b|\bmake whole\b": "rounded",
    r"\bcannot be told\b": "cannot be known",
    r"\btell(?:s)? (?:\w+ )?apart\b|\btold apart\b": "distinguish",
    r"\bthere (?:is|are) none\b": "split the sentence, or 'no …'",
    r"(?<!here )\b(?:is|are) no (?!longer|more\b|less\b|\w+er\b|worse)": "is not a",
    r"\bthat have none\b|\bwhere there is none\b|\bif there is none\b": "without …",
    r"\bwhat is (?:left|kept|there)\b": "the rest, …",
    r"\bprices\b": "multipliers",
    r"\borderly\b": "isotonic, monotone",
    r"\bshared out\b|\bhanded out\b|\bhand out\b": "allocated",
    r"\blooked over\b|\blooked at\b": "checked",
    r"\bplayed\b": "simulated",
    r"\bdo(?:es)? not go with\b|\bgoes with\b": "cannot be combined with",
    r"\bis a defect of ours\b|\bour own defect\b": "a bug in tallytree",
    r"\bsorry\b": "say what to do",
    r"\bat a glance\b": "summary",
    r"\btold by\b|\btold from\b|\btold of\b": "known from, distinguished by",
}
PATTERNS = {re.compile(pattern, re.IGNORECASE): advice for pattern, advice in STOP_LIST.items()}
# Sentences that have such a word for a good reason: a part of each is enough.
EXCEPTIONS: tuple[str, ...] = ()


@dataclass(frozen=True)
class Text:
    """A piece of text that people read, and where it stands."""

    kind: str  # page, docstring, message or help
    place: str
    text: str


def paragraphs(page):
    """The paragraphs and list items of a page, without code, tables and headings."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL)
    for block in re.split(r"\n\s*\n|\n(?=\s*(?:[-*] |\d+\. ))", text):
        lines = [line for line in block.splitlines() if not re.match(r"\s*(?:\||#|!\[|\$\$|:::|\(.*\)=)", line)]
        if found := " ".join(lines).strip():
            yield found


def _documented(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text:
                yield node, text


def _words_of(node):
    """A string constant or an f-string, with … for its values."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(part.value if isinstance(part, ast.Constant) else "…" for part in node.values)
    return None


def docstrings(path):
    """The docstrings of a module: name and text without examples and formulas in backticks."""
    for node, text in _documented(ast.parse(path.read_text(encoding="utf-8"))):
        name = getattr(node, "name", "module")
        yield name, re.sub(r"^\s*(?:>>>|\.\.\. ).*\n(?:(?!\s*$).*\n)*", "", text + "\n", flags=re.MULTILINE)


def messages(path):
    """The texts of a module that a person may read: string constants of three words or more that are no docstrings."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    passed = {id(node.body[0].value) for node, _ in _documented(tree)}
    inner = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in ast.walk(node)} - {
        id(node) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr)
    }
    for node in ast.walk(tree):
        text = _words_of(node)
        if text is None or id(node) in passed or id(node) in inner:
            continue
        if (
            len(re.findall(r"[A-Za-z]{2,}", text)) >= 3
            and " " in text
            and not re.search(r"\b(?:SELECT|FROM|CREATE)\b", text)
        ):
            yield node.lineno, " ".join(text.split())


def help_texts():
    """The help of every command and option."""
    import typer.main

    from tallytree.command.main import app

    def walk(command, name):
        if command.help:
            yield name, command.help
        for parameter in command.params:
            if getattr(parameter, "help", None):
                yield f"{name} {parameter.opts[0]}", parameter.help
        for word, inner in getattr(command, "commands", {}).items():
            yield from walk(inner, f"{name} {word}")

    yield from walk(typer.main.get_command(app), "tallytree")


def texts():
    """Everything that people read: pages, docstrings, messages and help."""
    for page in PAGES:
        for text in paragraphs(page):
            yield Text("page", str(page.relative_to(ROOT)), text)
    for path in sorted(SOURCE.rglob("*.py")):
        module = str(path.relative_to(SOURCE))
        for name, text in docstrings(path):
            yield Text("docstring", f"{module}:{name}", text)
        for line, text in messages(path):
            yield Text("message", f"{module}:{line}", text)
    for path in sorted(SOURCE.rglob("*.html")):
        text = re.sub(
            r"<(script|style).*?</\1>|\{[%#].*?[%#]\}", " ", path.read_text(encoding="utf-8"), flags=re.DOTALL
        )
        for part in re.split(r"<(?:p|h\d|li|td|th|div|summary|figcaption|section|label|a|span)\b[^>]*>", text):
            words = " ".join(re.sub(r"<[^>]*>|\{\{.*?\}\}", "…", part).split())
            if len(words.split()) >= 3:
                yield Text("message", str(path.relative_to(SOURCE)), words)
    for name, text in help_texts():
        yield Text("help", name, text)


def sentences(text):
    """The sentences of a text, without what stands in backticks, links and brackets of citations."""
    plain = re.sub(r"`[^`]*`", "X", text)
    plain = re.sub(r"\]\([^)]*\)", "]", plain)
    plain = re.sub(r"(?<=[.!?:;])(?:\*+|\))(?=\s)", "", plain)  # the end of emphasis or of a bracket
    return re.split(r"(?<=[.!?:;])\s+(?=[A-Z*\[“(])|\n\s*\n", plain)


def breaches(text):
    """What a text breaks: (rule, the words found)."""
    plain = re.sub(r"`[^`]*`", "x", text.text)
    for pattern, advice in PATTERNS.items():
        for found in pattern.finditer(plain):
            around = plain[max(0, found.start() - 30) : found.end() + 30]
            if not any(allowed in plain for allowed in EXCEPTIONS):
                yield f"{found.group()} → {advice}", around
    if text.kind in ("page", "help"):
        for sentence in sentences(text.text):
            if len(sentence.split()) > LONGEST_SENTENCE:
                yield f"a sentence of {len(sentence.split())} words", sentence[:80]


def main():
    """Print the listing that was asked for."""
    if "breaches" in sys.argv:
        for text in texts():
            for rule, words in breaches(text):
                print(f"{text.kind} {text.place}: {rule}\n    … {' '.join(words.split())} …")
    else:
        for text in texts():
            if text.kind in ("message", "help"):
                print(f"{text.place}: {text.text}")


if __name__ == "__main__":
    main()
