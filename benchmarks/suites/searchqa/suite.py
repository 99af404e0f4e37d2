"""SearchQA (Dunn et al. 2017): a question, answered from snippets of a search engine.

Scored by exact match after the normalisation of SQuAD 1.1 (Rajpurkar et al. 2016); the soft score
is F1 of the words, against the closest of the accepted answers.
"""

import re
import string
from collections import Counter
from typing import Any

import pytest
from published import answer_in, data_of, tasks

MOST = 6000  # characters of the context, as in SkillOpt


def words(text: str) -> list[str]:
    text = "".join(char for char in text.lower() if char not in string.punctuation)
    return re.sub(r"\b(a|an|the)\b", " ", text).split()


def f1(given: list[str], wanted: list[str]) -> float:
    common = (Counter(given) & Counter(wanted)).total()
    return 2 * common / (len(given) + len(wanted)) if common else float(given == wanted)


@pytest.mark.parametrize("case", tasks(data_of("searchqa"), "*.jsonl", "key"))
def test_searchqa(case: Any, skill_agent: Any, rollout: Any) -> None:
    prompt = f"CONTEXT\n{case['context'][:MOST]}\n\nQUESTION\n{case['question']}\n\n"
    answer = answer_in(skill_agent(prompt + "End with the answer as <answer>...</answer>."))
    rollout.score(max(f1(words(answer), words(wanted)) for wanted in case["answers"]))
    assert words(answer) in [words(wanted) for wanted in case["answers"]], (
        f"answer: expected one of {case['answers']}, got {answer!r}"
    )
