"""An application on schedq: it resizes pictures, delivers signed webhooks and sends reminder mail.

In three terminals, from the folder examples (add SCHEDQ_REDIS_URL=embedded:// to all three if there is no Redis):

    python -m demo.receivers        # receives webhooks and mail
    schedq worker demo.app:queue    # does the work
    python -m demo.produce          # enqueues some jobs

A job may run twice if a worker dies in the middle of it, so every task here is idempotent: files are replaced as a
whole, and webhooks and mail carry the job id, by which receivers recognize duplicates.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import smtplib
import tempfile
import time
from email.message import EmailMessage
from pathlib import Path

import httpx
from PIL import Image, ImageOps

from schedq import Discard, Exponential, Queue, current_job

PICTURES = Path(__file__).parent / "pictures"
PICTURES_OUT = Path(os.environ.get("PICTURES_OUT", "out"))
WEBHOOK_URL = os.environ.get("WEBHOOK_URL", "http://127.0.0.1:8080/hooks")
WEBHOOK_SECRET = os.environ.get("WEBHOOK_SECRET", "not a secret")
SMTP_PORT = int(os.environ.get("SMTP_PORT", "8025"))
TLS = httpx.create_ssl_context()  # created once: reading the certificates takes longer than a request

# A dead worker's jobs are taken back after visibility_ms; a live worker renews its own, however long they take.
queue = Queue("demo", visibility_ms=int(os.environ.get("VISIBILITY_MS", "10000")))


@queue.task
def resize(name: str, width: int) -> str:
    """Write a copy of the picture `name`, `width` pixels wide, and return the name of the new file."""
    with Image.open(PICTURES / name) as picture:
        height = max(1, round(picture.height * width / picture.width))
        copy = picture.resize((width, height), Image.Resampling.LANCZOS)
    return save(copy, f"{Path(name).stem}-{width}.jpg")


@queue.task(timeout=120)
def contact_sheet(width: int = 3600, columns: int = 4) -> str:
    """Write all pictures as squares on one print-quality sheet, and return the name of the file."""
    names = sorted(path.name for path in PICTURES.glob("*.jpg"))
    side = width // columns
    sheet = Image.new("RGB", (width, side * -(-len(names) // columns)), "white")
    for place, name in enumerate(names):
        with Image.open(PICTURES / name) as picture:
            square = ImageOps.fit(picture.convert("RGB"), (side - 40, side - 40), Image.Resampling.LANCZOS)
        sheet.paste(square, (place % columns * side + 20, place // columns * side + 20))
    return save(sheet, "contact-sheet.png")


# 0.5, 1, 2, 4 ... seconds, at most a minute: a receiver that is down gets fewer and fewer requests.
@queue.task(max_attempts=8, backoff=Exponential(base=0.5, factor=2, cap=60), timeout=30)
async def deliver_webhook(event: dict[str, object]) -> int:
    """Post `event`, signed, to the subscriber; any status but 2xx is retried with backoff."""
    body = json.dumps(event).encode()
    headers = signature(body, str(int(time.time()))) | {"Idempotency-Key": current_job().id}
    async with httpx.AsyncClient(verify=TLS, timeout=10) as client:
        answer = await client.post(WEBHOOK_URL, content=body, headers=headers)
    if answer.status_code == httpx.codes.GONE:
        raise Discard("the subscriber has unsubscribed")
    answer.raise_for_status()
    return answer.status_code


@queue.task(max_attempts=5, backoff=Exponential(base=1, factor=3, cap=600), timeout=60)
def remind(to: str, subject: str, text: str) -> str:
    """Mail a reminder and return its Message-ID."""
    mail = EmailMessage()
    mail["From"], mail["To"], mail["Subject"] = "reminders@example.org", to, subject
    mail["Message-ID"] = f"<{current_job().id}@example.org>"
    mail.set_content(text)
    with smtplib.SMTP("127.0.0.1", SMTP_PORT, timeout=30) as smtp:
        smtp.send_message(mail)
    return str(mail["Message-ID"])


def signature(body: bytes, timestamp: str) -> dict[str, str]:
    """The headers that prove who sent `body` and when: an HMAC-SHA256 over both.

    The timestamp is signed too, so that a recorded delivery can't be replayed the next day.
    """
    digest = hmac.new(WEBHOOK_SECRET.encode(), timestamp.encode() + b"." + body, hashlib.sha256)
    return {"Webhook-Timestamp": timestamp, "Webhook-Signature": f"sha256={digest.hexdigest()}"}


def save(picture: Image.Image, name: str) -> str:
    """Write `picture` to PICTURES_OUT as `name`, completely or not at all, and return the name."""
    PICTURES_OUT.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=PICTURES_OUT, prefix=".") as folder:
        picture.save(Path(folder) / name)
        os.replace(Path(folder) / name, PICTURES_OUT / name)
    return name
