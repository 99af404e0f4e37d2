"""OfficeQA (Databricks): questions about figures in the U.S. Treasury Bulletins.

Scored by exact match after the normalisation of SkillOpt's ``envs/officeqa``: lower case, no
commas, no punctuation but that of numbers and %, no words of scale or currency.
"""

import re
import string
from typing import Any

import pytest
from published import answer_in, data_of, tasks

DATA = data_of("officeqa")
DROPPED = str.maketrans("", "", "".join(set(string.punctuation) - set(".-%")))
UNITS = r"\b(millions?|billions?|dollars?|nominal)\b"


def plain(text: str) -> list[str]:
    return re.sub(UNITS, " ", text.lower().translate(DROPPED)).split()


@pytest.fixture
def files(case: Any) -> dict[str, list[str]]:
    """Return the lines of each document."""
    folder = DATA / "documents"
    names = case["source_files"].split()
    return {name: (folder / name).read_text(encoding="utf-8").splitlines() for name in names}


@pytest.mark.parametrize("case", tasks(DATA, "officeqa_full.csv", "uid"))
def test_officeqa(case: Any, files: dict[str, list[str]], skill_agent: Any) -> None:
    def find(text: str) -> str:
        """List the lines of the documents that contain a text, at most 40, with their numbers."""
        numbered = ((f, n, s) for f in files for n, s in enumerate(files[f], 1))
        hits = [f"{f}:{n}: {s[:300]}" for f, n, s in numbered if text.lower() in s.lower()]
        return "\n".join(hits[:40]) or "nothing found"

    def read(file: str, first: int) -> str:
        """Read 60 lines of a document from line ``first``, counted from 1."""
        return "\n".join(files[file][max(first - 1, 0) :][:60]) or "the document ends before that"

    prompt = f"{case['question']}\n\nDocuments: {', '.join(files)}\n\n"
    prompt += "End with the answer as <answer>...</answer>."
    answer = answer_in(skill_agent(prompt, tools=[find, read]))
    wanted = case.get("ground_truth") or case["answer"]
    assert plain(answer) == plain(wanted), f"answer: expected {wanted!r}, got {answer!r}"
