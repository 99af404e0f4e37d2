"""DocVQA (Mathew et al. 2021): a question about the picture of a page.

Scored by ANLS (Biten et al. 2019): 1 minus the Levenshtein distance over the length of the longer
text, 0 if the distance is half of that or more; passed, as in SkillOpt, at 0.999.
"""

import base64
from typing import Any

import pytest
from published import answer_in, data_of, tasks

from pytest_skillopt.plugins.published.environments import complete

DATA = data_of("docvqa")


def distance(a: str, b: str) -> int:
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        left = row[0]
        row[0] = i
        for j, y in enumerate(b, 1):
            left, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, left + (x != y))
    return row[-1]


def anls(given: str, wanted: str) -> float:
    a, b = (" ".join(text.lower().split()) for text in (given, wanted))
    far = distance(a, b) / (max(len(a), len(b)) or 1)
    return 1 - far if far < 0.5 else 0.0


@pytest.fixture
def picture(case: Any) -> str:
    return base64.b64encode((DATA / case["image_path"]).read_bytes()).decode()


@pytest.mark.parametrize("case", tasks(DATA, "*.jsonl", "questionId"))
def test_docvqa(case: Any, picture: str, skill: Any, skill_agent: Any, rollout: Any) -> None:
    question = f"{case['question']}\nEnd with the answer as <answer>...</answer>."
    shown = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{picture}"}}
    content = [{"type": "text", "text": question}, shown]
    said = [{"role": "system", "content": skill.text}, {"role": "user", "content": content}]
    answer = answer_in(complete(skill_agent, said).text)
    score = max(anls(answer, wanted) for wanted in case["answers"])
    rollout.score(score)
    assert score >= 0.999, f"answer: expected one of {case['answers']}, got {answer!r}"
