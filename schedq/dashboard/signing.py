"""Signed cookies and form tokens, and the delay for clients that guess tokens."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import secrets
import time
from collections import OrderedDict, deque
from typing import Final

SESSION_S: Final = 12 * 3600
"""Seconds after which a browser must log in again."""
_MOST_CALLERS: Final = 1000
_MOST_NOTED: Final = 500
_NONCE: Final = 22
"""Characters of a form cookie, 128 random bits."""


class Signer:
    """Signs and verifies session cookies and form tokens; stateless, so any process with the secret can verify them.

    Args:
        secret: the key; changing it invalidates all cookies and tokens.
    """

    def __init__(self, secret: str) -> None:
        self._key = hashlib.sha256(b"schedq dashboard\0" + secret.encode()).digest()
        # Browsers do not separate cookies by port: two dashboards on one host must not log each other out.
        self.cookie: Final = f"schedq_{self._mac('name', '')[:8]}"

    def _mac(self, purpose: str, text: str) -> str:
        return hmac.new(self._key, f"{purpose}\0{text}".encode(), hashlib.sha256).hexdigest()

    def session(self) -> str:
        """A new session cookie for a user who has logged in."""
        text = f"{int(time.time()) + SESSION_S}.{secrets.token_urlsafe(12)}"
        return f"{text}.{self._mac('session', text)}"

    def is_session(self, cookie: str) -> bool:
        """Whether this is a valid, unexpired session cookie."""
        text, _, mac = cookie.rpartition(".")
        ends = text.partition(".")[0]
        is_ours = hmac.compare_digest(mac.encode(), self._mac("session", text).encode())
        return is_ours and ends.isascii() and ends.isdigit() and int(ends) > time.time()

    def note(self, text: str) -> str:
        """A cookie that carries a notice to the next page."""
        carried = base64.urlsafe_b64encode(text[:_MOST_NOTED].encode()).decode()
        return f"{carried}.{self._mac('note', carried)}"

    def read_note(self, cookie: str) -> str:
        """The notice in a cookie; '' if the cookie is invalid."""
        carried, _, mac = cookie.rpartition(".")
        if not hmac.compare_digest(mac.encode(), self._mac("note", carried).encode()):
            return ""
        return base64.urlsafe_b64decode(carried).decode(errors="replace")

    def form_token(self, nonce: str) -> str:
        """The CSRF token of forms for the browser with this form cookie."""
        return self._mac("form", nonce)

    def is_form_token(self, nonce: str, token: str) -> bool:
        """Whether the token belongs to the browser with this form cookie."""
        return is_nonce(nonce) and hmac.compare_digest(token.encode(), self.form_token(nonce).encode())


def new_nonce() -> str:
    """A new form cookie."""
    return secrets.token_urlsafe(16)


def is_nonce(text: str) -> bool:
    """Whether this can be a form cookie."""
    return len(text) == _NONCE and text.isascii()


def is_same(shown: str, token: str) -> bool:
    """Whether both texts are equal, compared in constant time."""
    digests = (hashlib.sha256(text.encode(errors="surrogatepass")).digest() for text in (shown, token))
    return hmac.compare_digest(*digests)


class Throttle:
    """Slows down guessing: after `most` wrong tokens within `window_s` from one address, responses are delayed.

    Args:
        most: number of wrong tokens whose responses are not delayed.
        window_s: seconds for which wrong tokens count.
        delay_s: seconds by which a response is delayed.
        most_delayed: maximum number of responses delayed at the same time, because each holds a connection.
    """

    def __init__(self, most: int = 10, window_s: float = 60, delay_s: float = 2.0, most_delayed: int = 100) -> None:
        self._most, self._window_s = most, window_s
        self._delay_s, self._most_delayed = delay_s, most_delayed
        self._delayed = 0
        self._wrong: OrderedDict[str, deque[float]] = OrderedDict()

    def is_slow(self, caller: str) -> bool:
        """Whether responses to this address are delayed, because it recently sent too many wrong tokens."""
        wrong = self._wrong.get(caller)
        while wrong and wrong[0] < time.monotonic() - self._window_s:
            wrong.popleft()
        return wrong is not None and len(wrong) > self._most

    def note_wrong(self, caller: str) -> None:
        """Record a wrong token from an address."""
        self._wrong.setdefault(caller, deque(maxlen=self._most + 1)).append(time.monotonic())
        self._wrong.move_to_end(caller)
        if len(self._wrong) > _MOST_CALLERS:
            self._wrong.popitem(last=False)

    async def delay(self) -> None:
        """Wait, unless too many responses are already being delayed."""
        if self._delayed >= self._most_delayed:
            return
        self._delayed += 1
        try:
            await asyncio.sleep(self._delay_s)
        finally:
            self._delayed -= 1
