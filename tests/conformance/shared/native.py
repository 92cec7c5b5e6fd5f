"""A small Agent API client, and the rules that every stream of the gateway follows.

`run` runs a turn and returns the complete stream. `Stream.well_formed` checks the strict-writer rules: messages start
before their content, one is open at a time, all are closed, sequence numbers have no gaps, and nothing follows the
terminal frame. Uses only the standard library.
"""

import http.client
import json
import socket
import urllib.parse

TERMINAL = {"completed", "failed", "canceled", "rejected", "incomplete"}


def question(text, **more) -> dict:
    """A request with one user message."""
    return {"input": [{"role": "user", "type": "message", "content": [{"type": "text", "text": text}]}], **more}


class Connection:
    """One request and its response, read frame by frame."""

    def __init__(self, url, body, method="POST", timeout=60, headers=None):
        where = urllib.parse.urlsplit(url)
        self.connection = http.client.HTTPConnection(where.hostname, where.port, timeout=timeout)
        path = where.path + (f"?{where.query}" if where.query else "")
        payload = body if isinstance(body, (bytes, str)) or body is None else json.dumps(body)
        self.connection.request(method, path, payload, {"content-type": "application/json", **(headers or {})})
        self.answer = self.connection.getresponse()
        self.status = self.answer.status
        self.type = self.answer.headers.get_content_type()

    def frames(self):
        """The object of each event as it arrives. Comments are skipped; any line but `data:` is an error."""
        rest = b""
        while chunk := self.answer.read1(65536):
            *whole, rest = (rest + chunk).split(b"\n\n")
            for frame in whole:
                lines = [line for line in frame.split(b"\n") if line and not line.startswith(b":")]
                assert all(line.startswith((b"data: ", b"id: ")) for line in lines), f"odd lines in {frame!r}"
                said = [line[6:] for line in lines if line.startswith(b"data: ")]
                if said:
                    yield json.loads(b"\n".join(said))
        assert not rest.strip(), f"the body ends inside a frame: {rest!r}"

    def json(self):
        return json.loads(self.answer.read())

    def close(self):
        """Closes the connection, even if the response is incomplete."""
        if self.connection.sock:
            self.connection.sock.shutdown(socket.SHUT_RDWR)
        self.connection.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.connection.close()


class Stream:
    """A complete stream of events."""

    def __init__(self, frames):
        self.frames = frames

    @property
    def last(self) -> dict:
        return self.frames[-1]

    @property
    def status(self) -> str:
        return self.last["status"]

    @property
    def output(self) -> list:
        return self.last["output"] or []

    def messages(self, kind=None) -> list:
        return [message for message in self.output if kind in (None, message["type"])]

    def contents(self, kind) -> list:
        return [part for message in self.output for part in message["content"] or [] if part["type"] == kind]

    @property
    def text(self) -> str:
        """The text of the reply, without reasoning."""
        parts = [part for message in self.messages("message") for part in message["content"] or []]
        return "".join(part["text"] for part in parts if part["type"] == "text")

    @property
    def streamed_text(self) -> str:
        """The same text, assembled from the deltas."""
        kinds = {frame["id"]: frame["type"] for frame in self.frames if frame["object"] == "message"}
        pieces = [frame for frame in self.frames if frame["object"] == "content" and frame["type"] == "text"]
        return "".join(f["text"] for f in pieces if f.get("delta") and kinds.get(f["msg_id"]) == "message")

    def well_formed(self) -> "Stream":
        frames = self.frames
        assert frames, "the stream is empty"
        assert [f["sequence_number"] for f in frames] == list(range(len(frames))), "sequence numbers have gaps"
        for frame in frames:
            assert frame["object"] in ("response", "message", "content"), f"odd object {frame['object']!r}"

        first = frames[0]
        assert (first["object"], first["status"]) == ("response", "created"), "it does not begin with response created"
        responses = [frame for frame in frames if frame["object"] == "response"]
        assert len({frame["id"] for frame in responses}) == 1, "the response's id changes"
        assert len({frame["session_id"] for frame in responses}) == 1, "the session's id changes"
        endings = [frame for frame in responses if frame["status"] in TERMINAL]
        assert len(endings) == 1, f"{len(endings)} endings"
        assert frames[-1] is endings[0], "something follows the ending"

        open_message, open_slot, closed = None, None, []
        for frame in frames:
            place = f"frame {frame['sequence_number']}"
            if frame["object"] == "message":
                if frame["status"] == "in_progress":
                    assert open_message is None, f"{place} opens a message inside another"
                    assert frame["id"] not in closed, f"{place} opens a message again"
                    open_message, open_slot = frame["id"], None
                else:
                    assert frame["id"] == open_message, f"{place} closes a message that is not open"
                    assert open_slot is None, f"{place} closes a message with an open slot"
                    closed.append(open_message)
                    open_message = None
            elif frame["object"] == "content":
                assert frame["msg_id"] == open_message, f"{place} fills a message that is not open"
                assert isinstance(frame["index"], int), f"{place} has no index"
                assert open_slot in (None, frame["index"]), f"{place} fills a slot while another is open"
                open_slot = frame["index"] if frame["status"] == "in_progress" else None
        assert open_message is None, "a message is left open"

        listed = [message["id"] for message in self.output]
        assert listed == closed, "the output does not list the messages that were streamed, in their order"
        return self


def run(url, body, **options) -> Stream:
    """Runs a turn to its end and validates the stream."""
    with Connection(url, body, **options) as connection:
        assert connection.status == 200, f"HTTP {connection.status}: {connection.answer.read()[:500]!r}"
        assert connection.type == "text/event-stream", connection.type
        return Stream(list(connection.frames())).well_formed()
