"""The words of the simulated optimizer: rules it proposes when it is right, idle or wrong."""

from __future__ import annotations

RULES: dict[tuple[str, str], tuple[str, ...]] = {
    ("missing", "null"): (
        "A field that the document does not show is `null`, never an empty string.",
        "Write `null` for every requested field that is missing from the document.",
        "If a requested value is not stated anywhere, its value is `null`; do not leave it blank.",
    ),
    ("missing", "empty"): ("Write an empty string for a field that is missing.",),
    ("date_order", "day_first"): (
        "Read a date in figures with the day first, then the month.",
        "In numeric dates such as 03/04/2025 the first number is the day and the second the month.",
        "Suppliers write European dates: interpret slashes as day/month/year.",
    ),
    ("date_order", "month_first"): (
        "Read a date in figures with the month first, then the day.",
        "In numeric dates the first number is the month.",
    ),
    ("date_format", "iso"): (
        "Write every date in ISO 8601 form, YYYY-MM-DD.",
        "Dates in the answer are `YYYY-MM-DD`, whatever the document prints.",
    ),
    ("amounts", "number"): (
        "Write amounts as plain numbers with a decimal point, not as text.",
        "Amounts are JSON numbers, not strings, and carry no thousands separators.",
    ),
    ("credit_sign", "negative"): (
        "Amounts of a credit note are negative, even where they are printed without a sign.",
        "On a credit note write every amount with a minus sign.",
        "When the document is a credit note or a refund, report its sums as negative numbers.",
    ),
    ("credit_sign", "positive"): ("Amounts of a credit note are positive.",),
    ("line_items", "goods"): (
        "Shipping, freight, postage and handling charges are not line items; do not count them.",
        "Count lines of goods and services only, and leave out shipping or delivery charges.",
        "Exclude shipping, freight and similar charges when you count the lines.",
    ),
    ("line_items", "all"): ("Count shipping and freight charges among the lines.",),
    ("total_basis", "net"): ("Give the total before VAT.",),
    ("total_basis", "gross"): (
        "The total is the gross amount.",
        "Take the amount due, including VAT, as the total.",
    ),
    ("currency", "code"): (
        "Give the currency as its three-letter code.",
        "Currencies are ISO 4217 codes, never symbols.",
    ),
    ("order_number", "digits"): (
        "Reduce a purchase order number to its digits.",
        "Write purchase order numbers with digits only: no prefix, spaces, dots or hyphens.",
        "Strip prefixes and separators from a purchase order number so that only digits are left.",
    ),
    ("vat_id", "compact"): (
        "Write a VAT ID without spaces, dots or hyphens.",
        "Remove spaces and punctuation from VAT IDs.",
    ),
    ("supplier", "bare"): (
        "Give the supplier's name without its legal form.",
        "Leave the legal suffix of the company out of the supplier name.",
        "Drop the company form from the name of the supplier.",
    ),
    ("supplier", "printed"): ("Give the supplier's name exactly as printed, legal form included.",),
}
"""By convention and value, several wordings each."""

TOOL_RULES = (
    "A {what} that is not printed comes from the `{tool}` tool, never from your own reckoning.",
    "Always use the `{tool}` tool to work out a {what}.",
    "When no {what} is printed, call `{tool}` with the values from the document.",
)

PLATITUDES = (
    "Read the whole document carefully before you answer.",
    "Double-check your answer for accuracy and completeness.",
    "Pay close attention to detail; precision matters.",
    "Work step by step and keep the reader's needs in mind.",
    "Be consistent throughout the answer.",
    "Take your time with documents that look unusual.",
    "Make sure that the result is useful for accounts payable.",
    "Keep in mind that layouts differ between suppliers.",
)

HARMFUL = (
    "Give the currency as the symbol that the document prints.",
    "Write dates as DD/MM/YYYY.",
    "Report every amount in minor units (cents).",
    "Give the total before VAT.",
    "Write supplier names in capital letters.",
    "Answer in full sentences, so that a reader can follow.",
    "If anything is unclear, ask the user before you extract.",
    "Quote amounts exactly as printed, with their separators.",
    "Write `N/A` for a field that is missing.",
)

LEAK = "For documents like this one the right `{field}` is {want!r}."
