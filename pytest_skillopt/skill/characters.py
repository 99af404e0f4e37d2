"""Characters that deceive a reader: invisible ones, and foreign letters that pose as Latin."""

from __future__ import annotations

import re
import unicodedata
from typing import TYPE_CHECKING

from pytest_skillopt.untrusted import invisible

if TYPE_CHECKING:
    from collections.abc import Iterator

_WORD = re.compile(r"[^\W\d_]+")
_FOREIGN = re.compile(r"[^\x00-\u024f]")
# Letters drawn like Latin ones (Unicode confusables of the scripts most used for it).
_CYRILLIC_TWINS = frozenset("аеорсухіјѕԁԛԝһӏвмнткгьАВЕКМНОРСТУХІЈЅԌԚԜҮ")
_GREEK_TWINS = frozenset("αονρτυικχγεηωΑΒΕΖΗΙΚΜΝΟΡΤΥΧϲϳ")
# Letters in circles, brackets and squares; regional indicators are flags, two by two.
_ENCLOSED = re.compile("[\u249c-\u24e9\U0001f110-\U0001f189]{3,}")
_SHORT = 3
"""Letters of the longest word in which Latin and Greek may mix: units and variables (kΩ, Δx)."""


def hidden_characters(text: str) -> Iterator[str]:
    """One description for each invisible character, with what stands around it."""
    for at in invisible(text):
        name = unicodedata.name(text[at], "unnamed character")
        around = text[max(0, at - 12) : at + 13].replace("\n", " ")
        shown = "".join(_escaped(char) for char in around)
        yield f"U+{ord(text[at]):04X} {name} in {shown!r}"


def _escaped(char: str) -> str:
    return char if char.isprintable() else f"<U+{ord(char):04X}>"


def disguised_words(text: str) -> Iterator[str]:
    """Words that mix Latin with letters of another script, words made only of another script's
    twins of Latin letters in a text that does not otherwise use that script, and words in
    mathematical, enclosed, raised or small capital letters."""
    if not _FOREIGN.search(text):
        return
    for match in _ENCLOSED.finditer(text):
        yield match[0]
    writes_cyrillic = any(
        _script(char) == "CYRILLIC" and char not in _CYRILLIC_TWINS for char in set(text)
    )
    for match in _WORD.finditer(text):
        word = match[0]
        if _FOREIGN.search(word) and _is_disguised(word, writes_cyrillic):
            yield word


def _is_disguised(word: str, writes_cyrillic: bool) -> bool:
    scripts = {_script(char) for char in word}
    if len(word) >= _SHORT and any("\U0001d400" <= char <= "\U0001d7ff" for char in word):
        return True
    if len(word) >= _SHORT and 2 * sum(map(_is_drawn_letter, word)) > len(word):
        return True
    if "LATIN" in scripts and scripts - {"LATIN", "OTHER"}:
        greek_only = scripts <= {"LATIN", "GREEK", "OTHER"}
        return not greek_only or (len(word) > _SHORT and any(char in _GREEK_TWINS for char in word))
    twins = len(word) >= _SHORT and all(char in _CYRILLIC_TWINS for char in word)
    return twins and not writes_cyrillic


def _is_drawn_letter(char: str) -> bool:
    """A small capital or a raised letter: phonetics use them one by one, words do not."""
    name = unicodedata.name(char, "") if char > "\u024f" else ""
    return "LETTER SMALL CAPITAL" in name or name.startswith("MODIFIER LETTER SMALL")


def _script(char: str) -> str:
    """The script as far as it matters here; ``OTHER`` mixes with Latin as a matter of course."""
    if char < "\u0250":
        return "LATIN"
    script = unicodedata.name(char, "UNKNOWN").split()[0]
    if script in {"CYRILLIC", "GREEK", "ARMENIAN", "CHEROKEE", "COPTIC", "LISU", "FULLWIDTH"}:
        return script
    return "LATIN" if script in {"LATIN", "MICRO", "OHM", "KELVIN", "ANGSTROM"} else "OTHER"
