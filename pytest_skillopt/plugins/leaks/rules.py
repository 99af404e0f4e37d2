"""The rules of the lint on what a file adds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_skillopt.plugins.leaks import addresses, disguises
from pytest_skillopt.skill.lint import LintRule, additions

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pytest_skillopt.skill.lint import Change


def _secrets(change: Change) -> Iterator[str]:
    broken = disguises.broken_secrets
    for name in sorted(broken(change.after.text) - broken(change.before.text)):
        yield f"the value of {name}, whole or in pieces"


def _encoded(change: Change) -> Iterator[str]:
    was = change.before.text
    return (text for text in disguises.encoded_texts(change.added) if text not in was)


def _markup(change: Change) -> Iterable[str]:
    before, after = (disguises.without_code(side) for side in (change.before, change.after))
    return disguises.hidden_markup(additions(before, after))


def _contacts(change: Change) -> Iterator[str]:
    return _new(change, addresses.addresses(change.added))


def _commands(change: Change) -> Iterator[str]:
    return _new(change, addresses.shell_commands(change.after.text))


def _new(change: Change, found: Iterable[str]) -> Iterator[str]:
    was = change.before.text
    own = {*addresses.addresses(was), *addresses.shell_commands(was)}
    return (text for text in found if text not in own and not change.known(text))


RULES = (
    LintRule(
        "invisible",
        "refuse",
        "invisible, bidirectional, tag or control characters",
        lambda change: disguises.hidden_characters(change.added),
    ),
    LintRule(
        "mixed-script",
        "refuse",
        "words with letters of one script posing as another's",
        lambda change: disguises.disguised_words(change.added),
    ),
    LintRule("encoded", "refuse", "encoded text", _encoded),
    LintRule(
        "contact",
        "refuse",
        "an address that stands neither in the skill nor in its train tasks",
        _contacts,
    ),
    LintRule(
        "html-comment",
        "refuse",
        "comments and markup that a reader of the page does not see",
        _markup,
    ),
    LintRule(
        "unsafe-link",
        "refuse",
        "links that run, load or embed something",
        lambda change: disguises.unsafe_links(change.added),
    ),
    LintRule(
        "command",
        "warn",
        "a shell command that stands neither in the skill nor in its train tasks",
        _commands,
    ),
    LintRule("secret", "refuse", "text in the shape of a key, token or password", _secrets),
)
