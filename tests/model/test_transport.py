"""Replies that come slowly, in pieces, packed, or not to their end, over a plain socket."""

from __future__ import annotations

import gzip
import json
import resource
import socket
import threading
import zlib
from contextlib import contextmanager, suppress
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
from patience import PATIENCE
from tables import each_row

from pytest_skillopt.model import transport
from pytest_skillopt.model.client import ChatModel
from pytest_skillopt.model.config import ModelConfig, model_config
from pytest_skillopt.model.limits import Meter
from pytest_skillopt.model.types import ModelFault
from pytest_skillopt.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

BODY = json.dumps(
    {
        "id": "x",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": [
            {
                "index": 0,
                "finish_reason": "stop",
                "message": {"role": "assistant", "content": "Grüße! \ud83d\ude00 \ud800"},
            }
        ],
        "usage": {"prompt_tokens": -5, "completion_tokens": 2},
    }
).encode()
CHUNKED = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n"
RECEIVING = "http11.receive_response_headers.started"


def chunk(data: bytes) -> bytes:
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


def whole(connection: socket.socket) -> None:
    head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(BODY)}\r\n"
    connection.sendall(head.encode() + b"\r\n" + BODY)


def in_pieces(connection: socket.socket) -> None:
    connection.sendall(CHUNKED + b"\r\n")
    for at in range(0, len(BODY), 50):
        connection.sendall(chunk(BODY[at : at + 50]))
    connection.sendall(chunk(b""))


def packed(connection: socket.socket) -> None:
    data = gzip.compress(BODY)
    connection.sendall(CHUNKED + b"Content-Encoding: gzip\r\n\r\n" + chunk(data) + chunk(b""))


@pytest.fixture(
    params=[
        (CHUNKED + b"\r\n", chunk(b" ")),
        (b"HTTP/1.1 200 OK\r\n", b"X-Waiting: yes\r\n"),
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    ],
    ids=["blanks", "headers", "continue"],
)
def too_slow(
    monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Callable[[socket.socket], None]:
    """Pieces without end, the first of which comes too late; otherwise no time passes at all."""
    begin, piece = request.param
    now = [0.0]
    monkeypatch.setattr(transport, "time", SimpleNamespace(monotonic=lambda: now[0]))

    def answer(connection: socket.socket) -> None:
        connection.sendall(begin)
        now[0] += 2 * Settings().request_timeout
        while True:
            connection.sendall(piece)

    return answer


def read_request(connection: socket.socket) -> None:
    """All of it: to close a connection with something unread would take the answer back."""
    stream = connection.makefile("rb")
    length = 0
    while (line := stream.readline().lower()) not in (b"\r\n", b""):
        if line.startswith(b"content-length:"):
            length = int(line.partition(b":")[2])
    stream.read(length)


@contextmanager
def serving(answers: list[Callable[[socket.socket], None]]) -> Iterator[str]:
    """Gives each connection the next answer; the base URL."""
    listener = socket.create_server(("127.0.0.1", 0))

    def answer(connection: socket.socket, how: Callable[[socket.socket], None]) -> None:
        with connection, suppress(OSError):
            read_request(connection)
            how(connection)

    def accept() -> None:
        with suppress(OSError):
            for how in answers:
                connection, _ = listener.accept()
                threading.Thread(target=answer, args=(connection, how), daemon=True).start()

    thread = threading.Thread(target=accept)
    thread.start()
    yield f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
    listener.shutdown(socket.SHUT_RDWR)  # wakes a thread that waits for more than there were
    thread.join()
    listener.close()


def config(url: str, **values: object) -> ModelConfig:
    settings = Settings(target="openai:m", base_url=url, **values)  # type: ignore[arg-type]
    return model_config(settings, "target")


def ask(url: str, **values: object) -> tuple[str, bool]:
    model = ChatModel(config(url, **values), sleep=lambda seconds: None)
    try:
        found = model.complete([{"role": "user", "content": "Hello."}], sample="a")
    finally:
        model.close()
    return found.text, found.usage.estimated


def bomb(connection: socket.socket) -> None:
    packer = zlib.compressobj(1, wbits=31)
    data = b"".join(packer.compress(bytes(2**20)) for _ in range(60)) + packer.flush()
    connection.sendall(CHUNKED + b"Content-Encoding: gzip\r\n\r\n" + chunk(data) + chunk(b""))


def endless(connection: socket.socket) -> None:
    connection.sendall(CHUNKED + b"\r\n")
    while True:
        connection.sendall(chunk(b" " * 65536))


def broken_off(connection: socket.socket) -> None:
    connection.sendall(CHUNKED + b"\r\n" + chunk(BODY[:40]))


@each_row("how", [bomb, endless])
def test_a_reply_is_not_longer_than_it_may_be(how: Callable[[socket.socket], None]) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    words = "longer than 4,000,000 bytes"
    with serving([how]) as url, pytest.raises(ModelFault, match=words) as caught:
        ask(url)
    assert not caught.value.fatal
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 40 * 2**10


def test_the_bound_can_be_set() -> None:
    with serving([whole]) as url:
        assert ask(url, max_reply_bytes=1000)[0]
    with serving([lambda c: endless(c)]) as url, pytest.raises(ModelFault, match="2,000 bytes"):
        ask(url, max_reply_bytes=2000)


def test_a_reply_that_breaks_off_is_asked_for_once_more() -> None:
    with serving([broken_off, whole]) as url:
        assert ask(url)[0].startswith("Grüße!")
    with serving([broken_off] * 2) as url, pytest.raises(ModelFault, match=r"broke off.*2 tries"):
        ask(url)


@each_row("how", [broken_off, bomb])
def test_what_began_with_status_200_is_counted(how: Callable[[socket.socket], None]) -> None:
    limits = Meter()
    with serving([how] * 2) as url:
        model = ChatModel(config(url), throttle=limits, sleep=lambda seconds: None)
        with pytest.raises(ModelFault):
            model.complete([{"role": "user", "content": "Hello."}], sample="a")
        model.close()
    assert limits.spent.calls == (2 if how is broken_off else 1)
    assert limits.spent.estimated
    assert limits.spent.input_tokens > 0


@each_row("how", [whole, in_pieces, packed])
def test_a_reply_is_read_however_it_comes(how: Callable[[socket.socket], None]) -> None:
    with serving([how]) as url:
        text, estimated = ask(url)
    assert text == "Grüße! \U0001f600 ?", "a lone surrogate can be written to no file"
    assert estimated, "a count below zero is none"


def test_a_reply_that_never_ends_is_given_up_and_asked_for_again(
    too_slow: Callable[[socket.socket], None],
) -> None:
    with serving([too_slow, whole]) as url:
        assert ask(url)[0].startswith("Grüße!")


def test_what_is_always_too_slow_says_which_setting_bounds_it(
    too_slow: Callable[[socket.socket], None],
) -> None:
    with (
        serving([too_slow] * 2) as url,
        pytest.raises(ModelFault, match=r"not answer in time \(skillopt_request_timeout, "),
    ):
        ask(url)


@each_row("step", ["connection.connect_tcp.started", RECEIVING])
def test_a_call_that_the_end_meets_anywhere_ends_at_once(step: str) -> None:
    """Its descriptor stays its own meanwhile: no pipe to a child may get the number."""
    reached = threading.Event()
    go_on = threading.Event()
    found: list[Exception] = []
    sockets: list[socket.socket] = []

    def note(now: str) -> None:
        if now == step and not go_on.is_set():
            sockets.extend(stream.get_extra_info("socket") for stream in client._streams)
            reached.set()
            go_on.wait()

    def call() -> None:
        try:
            client.get(url)
        except Exception as error:
            found.append(error)

    def answer(connection: socket.socket) -> None:
        go_on.wait()
        connection.recv(1)

    with serving([answer]) as url:
        client = transport.BoundedClient(PATIENCE, 1000, note, timeout=PATIENCE, trust_env=False)
        calling = threading.Thread(target=call)
        calling.start()
        try:
            assert reached.wait(PATIENCE)
            client.close()
            kept = [each.fileno() != -1 for each in sockets]
        finally:
            go_on.set()
            calling.join()
    assert kept == [True] * (step == RECEIVING)
    assert [type(error).__name__ for error in found] in (["RemoteProtocolError"], ["ReadError"])
    assert client.is_closed
