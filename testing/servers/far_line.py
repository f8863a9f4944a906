"""A long line to a server: bytes arrive later, in both directions, and connecting takes a trip."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import urllib.parse

from testing.servers.process import Running

__all__ = ["FarLine"]


class FarLine(Running):
    """Passes bytes on to the server at `url`, each after `one_way_s`; it knows no protocol.

    A connection takes a round trip before anything that is sent through it leaves, as the kernel
    accepts it at once. Any number of bytes are on their way at a time.

    Attributes:
        url: of this end, with the scheme of the server.
    """

    def __init__(self, url: str, *, one_way_s: float) -> None:
        place = urllib.parse.urlsplit(url)
        self._target = (place.hostname, place.port)
        self._one_way_s = one_way_s
        self._loop = asyncio.new_event_loop()
        self._server = self._loop.run_until_complete(
            asyncio.start_server(self._connected, "127.0.0.1", 0, backlog=512)
        )
        port = self._server.sockets[0].getsockname()[1]
        self.url = f"{place.scheme}://127.0.0.1:{port}"
        self._thread = threading.Thread(target=self._loop.run_forever, name="far-line")
        self._thread.start()

    def stop(self) -> None:
        """Close all connections; the server behind it goes on."""
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _end(self) -> None:
        self._server.close()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for each in tasks:
            each.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.CancelledError):
            opened = asyncio.open_connection(*self._target)
            (to_reader, to_writer), _ = await asyncio.gather(
                opened, asyncio.sleep(2 * self._one_way_s)
            )
            await asyncio.gather(self._carry(reader, to_writer), self._carry(to_reader, writer))
        writer.close()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1 << 16):
            self._loop.call_later(self._one_way_s, writer.write, data)
        await asyncio.sleep(self._one_way_s)
        writer.close()
