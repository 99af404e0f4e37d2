"""Write the questions and pictures of DocVQA's validation split that a manifest names.

Usage: ``python fetch.py FOLDER``, with the manifest in FOLDER. Needs ``datasets``.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path


def main(folder: Path) -> None:
    """Fetch all rows, keep those of the manifest."""
    from datasets import load_dataset

    manifests = (json.loads(file.read_text()) for file in folder.glob("*/items.json"))
    wanted = {item["id"]: item["image_path"] for items in manifests for item in items}
    with (folder / "rows.jsonl").open("w", encoding="utf-8") as rows:
        for row in load_dataset("lmms-lab/DocVQA", "DocVQA", split="validation"):
            if path := wanted.get(str(row["questionId"])):
                (folder / path).parent.mkdir(parents=True, exist_ok=True)
                row["image"].save(folder / path)
                kept = {name: row[name] for name in ("questionId", "question", "answers")}
                rows.write(json.dumps(kept) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
