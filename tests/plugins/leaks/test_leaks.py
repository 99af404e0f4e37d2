from __future__ import annotations

import dataclasses
import json
import time
from pathlib import Path

from tables import each_row

from pytest_skillopt.plugins.leaks.task_words import Leak, LeakIndex
from pytest_skillopt.tasks.task import SkillTask

DATA = Path(__file__).parents[2] / "data"
SOURCE = '''@pytest.mark.skill_task
@pytest.mark.parametrize("case", CASES)
def test_fields(skill_agent, case):
    """The agent extracts what the ledger needs."""
    reply = skill_agent(
        f"Extract the fields of this invoice as JSON, please do not explain.\\n{case.text}"
    )
    assert reply.json()["total"] == case.total
    assert reply.json()["due_date"] == case.due
'''


def task(number: int, split: str, text: str, expected: object) -> SkillTask:
    shown = {"case": {"text": text, "expected": expected}}
    return SkillTask(
        id=f"tests/test_x.py::test_fields[case{number}]",
        source="",
        skill="SKILL.md",
        group="",
        split=split,
        doc="The agent extracts what the ledger needs.",
        text=f"{SOURCE}\n{json.dumps(shown, ensure_ascii=False)}",
    )


TASKS = [
    task(
        0,
        "train",
        "Invoice no: INV-20931\nBrightwater Logistics Ltd\n"
        "Total 1.249,50 €\nbilling@brightwater.example",
        {"total": 1249.5, "number": "INV-20931", "supplier": "Brightwater Logistics Ltd"},
    ),
    task(
        1,
        "val",
        "Rechnung 40417\nDatum: 2025-03-14\nTotal 88,00\n"
        "Please leave the parcel with the porter at the back door.",
        {"date": "2025-03-14", "password": "flibbertigibbet"},
    ),
    task(2, "test", "Order DE811907980\nGesamtbetrag 2'594.40", {"total": 2594.4}),
    *[
        task(
            n, "train", f"Invoice\nTotal {n}0\nVAT DE4711-{n}\nPaid by transfer", {"status": "paid"}
        )
        for n in range(3, 12)
    ],
]
INDEX = LeakIndex(TASKS, skill="# Invoices\n\nAn example of a number is 40418.\n")


def found(added: str) -> list[tuple[str, str]]:
    return [(leak.split, leak.excerpt) for leak in INDEX.check(added)]


@each_row(
    ("added", "expected"),
    [
        ("For documents like this one the right `total` is 1249.5.", [("train", "1249.5")]),
        ("The total is 1,249.50 EUR.", [("train", "1,249.50")]),
        ("If the number is inv-20931, it is paid.", [("train", "inv-20931")]),
        (
            "Invoices of Brightwater Logistics Ltd are net.",
            [("train", "Brightwater Logistics Ltd")],
        ),
        ("Write to billing@brightwater.example.", [("train", "billing@brightwater.example")]),
        ("Invoice 40417 is special.", [("val", "40417")]),
        ("The date is 2025-03-14.", [("val", "2025-03-14")]),
        ("Answer flibbertigibbet.", [("val", "flibbertigibbet")]),
        ("Answer Flib\u200bbertigibbet.", [("val", "Flibbertigibbet")]),
        ("Flibbertigibbet's word counts.", [("val", "Flibbertigibbet's")]),
        ("Give a flibbertigibbet-like answer.", [("val", "flibbertigibbet-like")]),
        ("The VAT id is DE811907980.", [("test", "DE811907980")]),
        ("The total is 2594.4.", [("test", "2594.4")]),
        ("The total is -2594.40.", [("test", "2594.40")]),
        (
            "A note says: leave the parcel with the porter at the back door!",
            [("val", "leave the parcel with the porter at the back door")],
        ),
    ],
)
def test_what_is_taken_from_a_task_is_found(added: str, expected: list[tuple[str, str]]) -> None:
    leaks = found(added)
    assert set(expected) <= set(leaks)
    assert {split for split, _ in leaks} == {split for split, _ in expected}


@each_row(
    "added",
    [
        "Extract the fields of this invoice as JSON, please do not explain.",
        "The agent extracts what the ledger needs.",
        "The key is `due_date`; `total` is a number, `status` is paid or open.",
        "Gesamtbetrag and Rechnung are German for total and invoice.",
        "Write dates as 2024-01-31 (ISO 8601), in UTF-8.",
        "Amounts above 1000 or 10,000 are checked twice, since 2019.",
        "An example of a number is 40418.",
        "Paid by transfer means that the status is paid.",
        "VAT ids begin with DE and have nine digits, e.g. DE123456789.",
        "Leave the parcel out of the total.",
        "The total is 25.94 or 259.44 or 25944.",
    ],
)
def test_what_is_general_is_no_leak(added: str) -> None:
    assert found(added) == []


def test_ordinary_lines_do_not_leak() -> None:
    for text in json.loads((DATA / "lines.json").read_text("utf-8"))["ordinary"]:
        assert found(text) == [], text


OTHER_FORMS = LeakIndex(
    [
        *TASKS,
        task(
            40,
            "val",
            "Contract VX/2021/00931 of 7 March 2021, tel. (0 89) 55 12 78-40",
            {"fare": 2318.75, "club": "Gormenghast rowing club", "by": "Ottilie Wraxham"},
        ),
        task(41, "test", "Parcel 00340434161094042557, part 88-4410-ZX", {"metal": "orichalcum"}),
    ]
)


@each_row(
    "added",
    [
        "2.318,75 EUR",
        "2_318.75",
        "231875 cents",
        "2,318.\n75 in all",
        "on 07.03.2021",
        "on 3/7/2021",
        "on March 7th, 2021",
        "07-Mar-2021",
        "20210307",
        "contract VX-2021-00931",
        "contract vx 2021 00931",
        "call 089 55127840",
        "0034 0434 1610 9404 2557",
        "part 884410ZX",
        "ORI-CHALCUM is the metal",
        "ori-\nchalcum",
        "a Gormenghast-rowing-club",
        "Wraxham, Ottilie",
        "Ottilie\nWraxham",
    ],
)
def test_it_is_found_in_another_form(added: str) -> None:
    assert OTHER_FORMS.check(f"The answer is {added}.")


@each_row(
    "added",
    [
        "Contracts of 2021 have five digits.",
        "Dates such as 7.4.2021 have no leading zero.",
        "A fare has two decimals, 23.18 or 2319.75.",
        "Call between 8 and 17, room 55, floor 12.",
        "Needs Python 3.7.21 or 3.12.10.",
        "The row of clubs is sorted by name, Oslo, Bergen.",
        "Parts 88 to 4410 are in stock.",
        "March comes before April; may I ask?",
    ],
)
def test_what_only_resembles_it_is_none(added: str) -> None:
    assert OTHER_FORMS.check(added) == []


def test_a_leak_names_its_tasks() -> None:
    (leak,) = INDEX.check("It is 40417.")
    assert leak == Leak("val", ("tests/test_x.py::test_fields[case1]",), "40417")


def test_what_a_train_task_holds_too_was_seen_there() -> None:
    both = [*TASKS, task(90, "train", "Rechnung 40417", {})]
    (leak,) = LeakIndex(both).check("It is 40417.")
    assert (leak.split, leak.tasks) == ("train", ("tests/test_x.py::test_fields[case90]",))


def test_what_many_tasks_share_is_boilerplate() -> None:
    shared = [task(n, "train", "Our customer number is K-70881.", {}) for n in range(20)]
    assert LeakIndex(shared).check("The customer number is K-70881.") == []
    assert LeakIndex([*shared[:2], *TASKS]).check("The customer number is K-70881.") != []


def test_a_group_counts_once() -> None:
    near = [
        dataclasses.replace(task(n, "val", "Code XK-70881.", {}), group="near") for n in range(20)
    ]
    assert [leak.split for leak in LeakIndex([*near, *TASKS]).check("XK-70881")] == ["val"]


def test_long_texts_take_no_more_than_a_moment() -> None:
    start = time.process_time()
    INDEX.check("word 1234.5 XK-99 Some Name " * 2_000)
    assert time.process_time() - start < 1.25


@each_row("answer", ["EN-44317", "CP-95063", "ISO-730214", "X47851"])
def test_an_answer_that_looks_like_a_standard_is_a_leak(answer: str) -> None:
    tasks = [
        SkillTask(f"t{i}", f"s{i}", "SKILL.md", f"t{i}", split="val", text=f"case number {i}")
        for i in range(10)
    ]
    text = f'expected = "{answer}"  # for x86_64, at 640x480'
    index = LeakIndex([*tasks, dataclasses.replace(tasks[0], id="t", group="t", text=text)])
    assert index.check(f"The reference is {answer}.")
    assert not index.check("Write dates as ISO 8601, text as UTF-8, hashes as SHA-256.")
    assert not index.check("Scale each picture to 640x480, for x86_64.")
