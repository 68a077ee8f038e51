"""The network between the processes and their server: one proxy per process, which can be cut, blocked or slowed.

`tests/proxy.py` serves tests of single requests; this one handles hundreds of connections, and faults last longer.
"""

from __future__ import annotations

import asyncio
import random
import socket
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, Self, TypeVar

T = TypeVar("T")
_RESET: Final = struct.pack("ii", 1, 0)
_SIZE: Final = 1 << 16
SCRIPT: Final = b"EVAL"
"""Found in every request that changes something."""


class _Wire:
    """A client's connection, and the corresponding one to the server."""

    def __init__(self, gate: Gate, client: asyncio.StreamWriter, server: asyncio.StreamWriter) -> None:
        self._gate = gate
        self._ends = (client, server)
        self.is_mute = False

    async def carry(self, source: asyncio.StreamReader, target: asyncio.StreamWriter, *, is_request: bool) -> None:
        """Forward bytes in one direction until either side ends."""
        gate = self._gate
        with suppress(OSError):
            while data := await source.read(_SIZE):
                await gate.opened.wait()
                if is_request and gate.replies_to_lose and SCRIPT in data:
                    gate.replies_to_lose -= 1
                    gate.lost += 1
                    self.is_mute = True
                    target.write(data)
                    continue
                if self.is_mute and not is_request:
                    break  # the server has executed it, but the reply is lost
                if gate.delay_s:
                    await self._crawl(data, target)
                else:
                    target.write(data)
                    await target.drain()
        self.reset()

    async def _crawl(self, data: bytes, target: asyncio.StreamWriter) -> None:
        """Forward with a delay, and in pieces."""
        await asyncio.sleep(self._gate.delay_s)
        cut = random.randrange(len(data))
        for piece in (data[:cut], data[cut:]):
            if piece:
                target.write(piece)
                await target.drain()
                await asyncio.sleep(0.001)

    def reset(self) -> None:
        """Abort both connections at once, as a cut does."""
        for end in self._ends:
            with suppress(OSError):
                end.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            end.transport.abort()


class Gate:
    """The proxy of one process.

    Attributes:
        opened: cleared while nothing passes in either direction; data sent then arrives late.
        replies_to_lose: number of writing requests whose reply is dropped, together with the connection.
        lost: number of replies dropped so far.
        delay_s: delay of every piece of data, which is also split in two.
    """

    def __init__(self, server_port: int) -> None:
        self._server_port = server_port
        self._wires: set[_Wire] = set()
        self.opened = asyncio.Event()
        self.opened.set()
        self.replies_to_lose = 0
        self.lost = 0
        self.delay_s = 0.0

    async def open(self, port: int = 0) -> int:
        """Listen and return the port."""
        self._listener = await asyncio.start_server(self._accept, "127.0.0.1", port)
        bound: int = self._listener.sockets[0].getsockname()[1]
        return bound

    def cut(self) -> None:
        """Reset every connection."""
        for wire in list(self._wires):
            wire.reset()

    def close(self) -> None:
        """Close permanently."""
        self._listener.close()
        self.opened.set()
        self.cut()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            back, forth = await asyncio.open_connection("127.0.0.1", self._server_port)
        except OSError:
            writer.transport.abort()
            return
        wire = _Wire(self, writer, forth)
        self._wires.add(wire)
        try:
            await asyncio.gather(wire.carry(reader, forth, is_request=True), wire.carry(back, writer, is_request=False))
        finally:
            self._wires.discard(wire)
            wire.reset()


class Network:
    """The proxies, on an event loop in a thread of their own; the methods are thread-safe."""

    def __init__(self, server_port: int) -> None:
        self._server_port = server_port
        self._gates: dict[str, Gate] = {}
        self._ports: dict[str, int] = {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="chaos-network", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._do(self._close_all)
        self._await(asyncio.sleep(0.05))
        self._await(_finish())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    def url(self, name: str) -> str:
        """The server's URL for the process `name`; constant for the lifetime of this object."""
        if name not in self._ports:
            self._gates[name] = gate = self._do(lambda: Gate(self._server_port))
            self._ports[name] = self._await(gate.open())
        return f"redis://127.0.0.1:{self._ports[name]}/0"

    def cut(self, name: str) -> None:
        """Reset all connections of a process."""
        self._do(self._gates[name].cut)

    def close(self, name: str) -> None:
        """Start a black hole: nothing passes any more."""
        self._do(self._gates[name].opened.clear)

    def open(self, name: str, *, keeps: bool = True) -> None:
        """End it: data sent in the meantime arrives now, or (`keeps` is False) the connections are reset."""
        gate = self._gates[name]
        if not keeps:
            self._do(gate.cut)
        self._do(gate.opened.set)

    def slow(self, name: str, delay_s: float) -> None:
        """Delay everything from now on, and split it into pieces; 0 ends that."""
        self._do(lambda: setattr(self._gates[name], "delay_s", delay_s))

    def lose_replies(self, name: str, count: int = 1) -> None:
        """Drop the replies to the next writing requests."""
        self._do(lambda: setattr(self._gates[name], "replies_to_lose", count))

    def lost(self) -> int:
        """Number of dropped replies."""
        return sum(gate.lost for gate in self._gates.values())

    def _close_all(self) -> None:
        for gate in self._gates.values():
            gate.close()

    def _do(self, action: Callable[[], T]) -> T:
        async def act() -> T:
            return action()

        done: T = self._await(act())
        return done

    def _await(self, coroutine: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(30)


async def _finish() -> None:
    """Let the remaining tasks end."""
    rest = asyncio.all_tasks() - {asyncio.current_task()}
    for task in rest:
        task.cancel()
    await asyncio.gather(*rest, return_exceptions=True)
