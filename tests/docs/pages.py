"""Parses Markdown for the tests of the documentation: fenced blocks, headings and links."""

import dataclasses
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[2]
FENCE = re.compile(r"^(```+|~~~+)\s*(\S*)\s*$")
# LINK matches [text](target), including images. The target may be in <> or be followed by a title.
LINK = re.compile(r"\[[^\]]*\]\(\s*<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\s*\)")
CODE = re.compile(r"(`+)(.+?)\1")
HEADING = re.compile(r"^(#{1,6})\s+(.*?)\s*#*\s*$")


@dataclasses.dataclass
class Block:
    language: str
    line: int  # line number of its fence, from 1
    text: str


def pages():
    """Returns all Markdown files of the checkout, except fetched and built ones."""
    skipped = ("build", ".deps", ".git")
    return sorted(path for path in ROOT.rglob("*.md")
                  if not path.relative_to(ROOT).parts[0].startswith(skipped))


def split(text):
    """Returns (prose, blocks): the lines outside of fences, as (number, line), and the fenced blocks, in order."""
    prose, blocks, fence, inside = [], [], None, []
    for number, line in enumerate(text.splitlines(), 1):
        match = FENCE.match(line)
        if fence is None and match:
            fence = match.group(1)
            inside = []
            blocks.append(Block(match.group(2), number, ""))
        elif fence is not None and match and match.group(1) == fence and not match.group(2):
            blocks[-1].text = "".join(kept + "\n" for kept in inside)
            fence = None
        elif fence is not None:
            inside.append(line)
        else:
            prose.append((number, line))
    if fence is not None:
        raise ValueError(f"the block of line {blocks[-1].line} does not end")
    return prose, blocks


def anchor(heading):
    """Returns the anchor that GitHub and mkdocs give a heading."""
    heading = LINK.sub(lambda match: match.group(0)[1:].split("]")[0], heading).replace("`", "")
    return re.sub(r"\s+", "-", re.sub(r"[^\w\s-]", "", heading.lower()).strip())


def anchors(text):
    found = set()
    for _, line in split(text)[0]:
        match = HEADING.match(line)
        if match:
            base = name = anchor(match.group(2))
            count = 0
            while name in found:
                count += 1
                name = f"{base}-{count}"
            found.add(name)
    return found


def links(text):
    """Yields (line number, target) for every link outside of code."""
    for number, line in split(text)[0]:
        for target in LINK.findall(CODE.sub("", line)):
            yield number, target


def code_words(text):
    """Yields (line number, word) for every inline code outside of fences."""
    for number, line in split(text)[0]:
        for _, code in CODE.findall(line):
            yield number, code
