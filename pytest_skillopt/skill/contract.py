"""Whether added text contradicts what the tasks fix about the answer.

Modest on purpose. Three facets are read from a contract: the format of the answer, its language,
and that nothing is asked back. A facet counts only where the contract states it in so many words,
and a contradiction only where the added text tells the agent to do otherwise in so many words, not
under a condition. Anything subtler is left to the gate, which measures it.
"""

# ruff: noqa: E501 -- a regular expression broken at 100 columns is harder to read, not easier
from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pytest_skillopt.skill.normal import prose, segments

if TYPE_CHECKING:
    from collections.abc import Iterator

_FORMATS = ("json", "yaml", "xml", "csv", "toml", "html", "markdown", "plain text", "prose")
_LANGUAGES = (
    "english", "german", "french", "spanish", "italian", "portuguese", "dutch", "polish", "swedish",
    "danish", "finnish", "czech", "turkish", "russian", "ukrainian", "arabic", "hindi", "chinese",
    "japanese", "korean",
)  # fmt: skip
_ANSWER = r"(?:answers?|repl(?:y|ies)|respon(?:ds?|ses?)|returns?|outputs?|writes?|gives?|produces?|emits?|formats?|prints?)"
_GIVEN_FORMAT = re.compile(
    rf"\b(?:{_ANSWER}\W+(?:\S+\s+){{0,8}}?|as (?:a |an )?(?:single |valid )?|only |strict |valid )"
    rf"({'|'.join(_FORMATS)})\b"
)
_ASKED_FORMAT = re.compile(
    rf"\b{_ANSWER}\W+(?:(?!json|yaml|xml|csv|toml)\S+\s+){{0,5}}?(?:in|as|using|only)?\s?(?:a |an |valid )*"
    rf"({'|'.join(_FORMATS)})\b(?! (?:keys?|fields?|values?|in the input|input))"
)
_GIVEN_LANGUAGE = re.compile(rf"\b(?:in|only|language is|use) ({'|'.join(_LANGUAGES)})\b")
_ASKED_LANGUAGE = re.compile(
    rf"\b(?:{_ANSWER}|speak|translate)\b.{{0,40}}?\b(?:in|into|to) ({'|'.join(_LANGUAGES)})\b"
)
_NO_QUESTIONS = re.compile(
    r"\b(?:no (?:follow-up |clarifying |further )?questions|(?:do not|don't|never|without) ask(?:ing)?\b"
    r"|no clarification|ask nothing|no questions? back)"
)
_ASKS_BACK = re.compile(
    r"\bask (?:the user|back|them|for (?:clarification|confirmation|more|the missing)|a |an |follow-up"
    r"|clarifying|whether|which)|\brequest (?:clarification|confirmation|more)|\bclarify with the user"
    r"|\bcheck with the user"
)
_ONLY = re.compile(
    r"\b(?:json|yaml|xml|csv|toml)(?: object| array)? only\b|\bonly (?:a |an |the |valid |one )*(?:json|yaml|xml|csv|toml)"
    r"|\b(?:nothing else|no (?:prose|explanation|other text|extra text|commentary))\b"
)
_ADDS_PROSE = re.compile(
    r"\b(?:add|append|include|precede|begin with|start with|end with|follow|explain|wrap)\w*\W+"
    r"(?:\w+\W+){0,6}?(?:explanations?|introduction|summary|sentences?|paragraphs?|greetings?|prose"
    r"|disclaimers?|comments?|code (?:fences?|blocks?)|notes?)\b(?! (?:field|key|column))"
)
_NEGATED = re.compile(r"\b(?:do not|don't|never|avoid|without|no|not|instead of|rather than)\b")
_CONDITION = re.compile(r"\b(?:if|when|unless|where|except)\b")


def contradictions(contract: str, added: str) -> Iterator[tuple[str, str]]:
    """Message and sentence of each contradiction.

    Args:
        contract: what the tasks fix, in plain words; may join the contracts of many tasks.
        added: the added text.
    """
    fixed = "\n".join(segments(prose(contract)))
    formats = set(_GIVEN_FORMAT.findall(fixed))
    languages = set(_GIVEN_LANGUAGE.findall(fixed))
    for sentence in segments(prose(added)):
        if _CONDITION.search(sentence) or _NEGATED.search(sentence):
            continue
        for kind, given, asked in (
            ("format", formats, set(_ASKED_FORMAT.findall(sentence))),
            ("language", languages, set(_ASKED_LANGUAGE.findall(sentence))),
        ):
            if given and asked and not asked & given:
                yield f"the tasks fix the {kind} {_list(given)}, not {_list(asked)}", sentence
        if _NO_QUESTIONS.search(fixed) and _ASKS_BACK.search(sentence):
            yield "the tasks allow no questions back", sentence
        if _ONLY.search(fixed) and _ADDS_PROSE.search(sentence):
            yield "the tasks allow nothing beside the answer itself", sentence


def fixed_by(text: str) -> Iterator[str]:
    """The sentences of a text, such as a docstring, that fix the form of an answer."""
    for sentence in segments(" ".join(text.split())):
        words = prose(sentence)
        if _CONDITION.search(words):
            continue
        if any(facet.search(words) for facet in (_ASKED_FORMAT, _ASKED_LANGUAGE, _NO_QUESTIONS)):
            yield sentence


def _list(names: set[str]) -> str:
    return " or ".join(sorted(names))
