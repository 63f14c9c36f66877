"""Which files, commands and Python blocks does a documentation page hold, in order?"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
CANDIDATES = sorted(
    [ROOT / "README.md", ROOT / "docs" / "tutorial.md", *(ROOT / "docs" / "how-to").glob("*.md")]
)
PAGES = [page for page in CANDIDATES if "\n```console\n" in page.read_text(encoding="utf-8")]
"""Pages whose commands run anywhere; those that need more (network namespaces, a GPU) fence theirs as `bash`."""

BLOCK = re.compile(
    r"(?:<!-- exit code (?P<code>\d+) -->\n)?```(?P<language>\w+)\n(?P<text>.*?)^```$", re.M | re.S
)
FILE_NAME = re.compile(r"# ([\w-]+\.yaml)\n")


@dataclass(frozen=True)
class Step:
    """A file to write (`name`), a command to run (`exit_code`), or Python to execute."""

    language: str
    text: str
    name: str = ""
    exit_code: int = 0


def steps(page: Path) -> list[Step]:
    """The page's blocks: `yaml` whose first line names the file, `console` lines after `$`, `python`."""
    found = []
    for block in BLOCK.finditer(page.read_text(encoding="utf-8")):
        language, text, code = block["language"], block["text"], int(block["code"] or 0)
        if language == "yaml" and (name := FILE_NAME.match(text)):
            found.append(Step("yaml", text, name=name[1]))
        elif language == "console":
            lines = [line.removeprefix("$ ") for line in text.splitlines() if line.startswith("$ ")]
            found += [Step("console", line, exit_code=code) for line in lines]
        elif language == "python":
            found.append(Step("python", text))
    return found
