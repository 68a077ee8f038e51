"""`python -m workflows`: start a run of each program, send the messages that it waits for, and print the results."""

from __future__ import annotations

import tempfile
from pathlib import Path

from workflows.agent import research
from workflows.album import make_sheet, show
from workflows.etl import load
from workflows.expenses import Expense, approve
from workflows.ladder import season
from workflows.nightly import nightly
from workflows.orders import fulfil
from workflows.signup import welcome

FILES = 10_000

order = fulfil.enqueue(17, 90)
order.send("packed", "parcel-1")
print("order:", order.result(timeout=60))

expense = approve.enqueue(Expense("Ada", 12_050, ("Grace", "Edsger")))
expense.send("verdict", value=True)
print("expense:", expense.result(timeout=60))

print("research:", research.enqueue("Which city is warmer?").result(timeout=60))
print("letters:", welcome.enqueue("ada").result(timeout=60))
print("night:", nightly.enqueue().result(timeout=60))
print("season:", *(episode.partition(",")[0] for episode in season.enqueue("spring", ["e1", "e2"]).result(timeout=60)))

sheet = make_sheet("trip", (f"photo-{number}" for number in range(5)))
print("chord:", sheet.wait(timeout=60) and sheet.then_job().result(timeout=60))
print("chain:", show("https://example.org/photo-7").result(timeout=60))

with tempfile.TemporaryDirectory() as folder:
    for number in range(FILES):
        (Path(folder) / f"{number:05}.csv").write_text(f"cents\n{number}\n{number}\n")
    files = load("sales", Path(folder))
    print("files:", files.wait(timeout=600) and files.then_job().result(timeout=60))
