from __future__ import annotations

import shutil
from textwrap import dedent
from typing import TYPE_CHECKING

from refusals import assert_refused

from pytest_skillopt.settings import Settings
from pytest_skillopt.tasks.task import SkillLocator, collect_task, describe_tasks

if TYPE_CHECKING:
    import pytest

    from pytest_skillopt.tasks.task import SkillTask


def collect(pytester: pytest.Pytester, source: str) -> dict[str, SkillTask]:
    items, _ = pytester.inline_genitems(pytester.makepyfile(source))
    found = [collect_task(item, SkillLocator(pytester.path, "SKILL.md")) for item in items]
    return {task.id.partition("::")[2]: task for task in found if task is not None}


def test_marks_of_function_class_and_module_are_merged_closest_first(
    pytester: pytest.Pytester,
) -> None:
    tasks = collect(
        pytester,
        """
        import pytest

        pytestmark = pytest.mark.skill_task(split="train", rollouts=7)

        @pytest.mark.skill_task(split="val", must_pass=True)
        class TestIt:
            @pytest.mark.skill_task(skill="other/SKILL.md", group="g")
            def test_a(self): pass

            def test_b(self): pass

        def test_c(skill_agent, skill_judge): "Does c."
        """,
    )
    a = tasks["TestIt::test_a"]
    b = tasks["TestIt::test_b"]
    c = tasks["test_c"]
    assert (a.split, a.rollouts, a.must_pass, a.skill) == ("val", 7, True, "other/SKILL.md")
    assert (a.group, b.group) == ("g", b.id)
    assert (b.split, b.must_pass, b.skill) == ("val", True, "SKILL.md")
    assert (c.split, c.must_pass, c.doc) == ("train", False, "Does c.")
    assert (a.roles, c.roles) == ((), ("target", "judge"))


def test_each_test_has_the_nearest_skill_in_all_the_places_that_agents_read(
    pytester: pytest.Pytester,
) -> None:
    """In a monorepo, in an ordinary run and in a mode; a fixture's skill is not theirs."""
    source = """
        import pytest

        @pytest.mark.skill_task
        def test_it(skill): assert skill.name == "{name}"
    """
    places = {"a": "a/skills/a", "b": "b/.claude/skills/b", "c": ".agents/skills/c", "d": "d"}
    for name, folder in places.items():
        tests = pytester.path / name / "tests"
        tests.mkdir(parents=True)
        (tests / f"test_{name}.py").write_text(dedent(source.format(name=name)))
        path = pytester.path / folder / "SKILL.md"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"---\nname: {name}\ndescription: D.\n---\n{name}\n")
    fixture = pytester.path / "c" / "tests" / "data" / "SKILL.md"
    fixture.parent.mkdir()
    fixture.write_text("---\nname: fixture\ndescription: D.\n---\nx\n")

    result = pytester.runpytest_inprocess("a", "b", "d")
    result.assert_outcomes(passed=3)
    result = pytester.runpytest_inprocess("--skillopt", "--skillopt-rollouts=1", "a", "b")
    result.stdout.fnmatch_lines(["*a/skills/a/SKILL.md*", "*b/.claude/skills/b/SKILL.md*"])
    result = pytester.runpytest_inprocess("c")
    result.stdout.fnmatch_lines(["*4 skills under *.agents/skills/c/SKILL.md, a/skills/a*"])
    for name in ("a", "b", "d"):
        shutil.rmtree(pytester.path / name)
    pytester.runpytest_inprocess("c").assert_outcomes(passed=1)


def test_the_source_tells_tasks_apart_by_what_they_do(pytester: pytest.Pytester) -> None:
    tasks = collect(
        pytester,
        """
        import dataclasses, pytest

        @dataclasses.dataclass
        class Case:
            name: str
            value: float

        mark = pytest.mark.skill_task

        @mark
        @pytest.mark.parametrize("case", [Case("x", 1.0), Case("y", 1.0)], ids=lambda c: c.name)
        def test_one(case): assert case.value

        @mark
        @pytest.mark.parametrize("case", [Case("x", 1.0)], ids=["other id"])
        def test_two(case):   # another name, another layout
            assert case.value

        @mark
        @pytest.mark.parametrize("case", [Case("x", 1.0)], ids=["x"])
        def test_three(case): assert not case.value

        @mark
        @pytest.mark.parametrize("thing", [object(), object()], ids=["a", "b"])
        def test_opaque(thing): pass

        @mark
        @pytest.mark.parametrize("checks", [[lambda t: "a" in t], [lambda t: "b" in t]])
        def test_functions(checks): assert all(check("a") for check in checks)
        """,
    )
    source = {name: task.source for name, task in tasks.items()}
    assert source["test_one[x]"] == source["test_two[other id]"]
    assert source["test_one[x]"] != source["test_one[y]"]
    assert source["test_one[x]"] != source["test_three[x]"]
    assert source["test_functions[checks0]"] != source["test_functions[checks1]"]
    assert source["test_opaque[a]"] != source["test_opaque[b]"]


def test_repetitions_of_a_test_have_one_content(pytester: pytest.Pytester) -> None:
    """They are kept in one split; pytest-repeat makes them so, as do others."""
    pytester.makeconftest(
        """
        import pytest

        @pytest.fixture
        def __repeat_step_number(request): return request.param

        def pytest_generate_tests(metafunc):
            metafunc.fixturenames.append("__repeat_step_number")
            metafunc.parametrize("__repeat_step_number", range(2), indirect=True)
        """
    )
    tasks = collect(
        pytester,
        """
        import pytest

        @pytest.mark.skill_task
        @pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])
        @pytest.mark.parametrize("name", ["Ada", "Ben"])
        def test_greeting(name, anyio_backend): assert name
        """,
    )
    assert len(tasks) == 8
    assert len({task.content for task in tasks.values()}) == 2
    assert not any("repeat_step" in task.text for task in tasks.values())


def test_a_task_that_uses_the_proxy_calls_the_target(pytester: pytest.Pytester) -> None:
    """Also by a fixture of the project."""
    pytester.makeconftest(
        """
        import pytest

        @pytest.fixture
        def url(skill_proxy): return skill_proxy
        """
    )
    tasks = collect(
        pytester,
        """
        import pytest

        pytestmark = pytest.mark.skill_task

        def test_here(skill_proxy): pass
        def test_fixture(url): pass
        def test_other(skill): "skill_proxy"
        """,
    )
    assert {name for name, task in tasks.items() if task.proxied} == {"test_here", "test_fixture"}
    assert all((task.roles == ("target",)) == task.proxied for task in tasks.values())


def test_a_source_is_the_same_in_every_process(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(
        """
        from pytest_skillopt.tasks.task import collect_task

        def pytest_collection_modifyitems(items):
            with open("sources.txt", "a") as file:
                print([collect_task(item, lambda m: "S").source for item in items], file=file)
        """
    )
    pytester.makepyfile(
        """
        import enum, pathlib, pytest

        class Colour(enum.Enum):
            RED = 1

        class Opaque: pass

        VALUES = [{"b": 1, "a": (2, None)}, Colour.RED, Opaque(), pathlib.Path("x"), b"y", {1, 2}]

        @pytest.mark.skill_task
        @pytest.mark.parametrize("value", VALUES, ids=[f"v{i}" for i in range(6)])
        def test_it(value): pass
        """
    )
    for _ in range(2):
        pytester.runpytest_inprocess("--collect-only", "-q")
    first, second = (pytester.path / "sources.txt").read_text().splitlines()
    assert first == second
    assert len(set(first.strip("[]").split(", "))) == 6


def test_the_order_of_the_tests_does_not_matter(pytester: pytest.Pytester) -> None:
    items, _ = pytester.inline_genitems(
        pytester.makepyfile(
            """
            import pytest

            @pytest.mark.skill_task
            @pytest.mark.parametrize("n", [2, 0, 1])
            def test_it(n): pass
            """
        )
    )
    (pytester.path / "SKILL.md").write_text("# Sort\n")
    config = items[0].config
    orders = (items, items[::-1])
    tasks = [describe_tasks(config, Settings(), order) for order in orders]
    assert tasks[0] == tasks[1]
    assert [task.id[-2] for task in tasks[0]] == ["0", "1", "2"]


def test_a_test_that_is_collected_twice_is_refused(pytester: pytest.Pytester) -> None:
    """Samples are counted by id, so that it would be told as two tasks."""
    (pytester.path / "SKILL.md").write_text("# Sort\n")
    name = pytester.makepyfile(
        """
        import pytest

        @pytest.mark.skill_task
        def test_it(): pass
        """
    ).name
    session = pytester.runpytest_inprocess("--skillopt", "--keep-duplicates", name, name)
    assert_refused(session, f"*{name}::test_it is collected twice*leave out --keep-duplicates*")
