"""`python -m workflows`: start a run of each program, send the messages that it waits for, and print the results."""

from __future__ import annotations

from workflows.agent import research
from workflows.expenses import Expense, approve
from workflows.nightly import nightly
from workflows.orders import fulfil
from workflows.signup import welcome

order = fulfil.enqueue(17, 90)
order.send("packed", "parcel-1")
print("order:", order.result(timeout=60))

expense = approve.enqueue(Expense("Ada", 12_050, ("Grace", "Edsger")))
expense.send("verdict", value=True)
print("expense:", expense.result(timeout=60))

print("research:", research.enqueue("Which city is warmer?").result(timeout=60))
print("letters:", welcome.enqueue("ada").result(timeout=60))
print("night:", nightly.enqueue().result(timeout=60))
