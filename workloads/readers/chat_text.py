"""Prompts and chats as text, tokenised by a tokenizer that the user names from a local file.

A line has ``prompt`` (also ``text``, ``text_input``), or ``messages`` (``[{"role", "content"}]``), or
``conversations`` (``[{"from", "value"}]``, ShareGPT).  A prompt and ``messages`` are one request; if the
last message is the assistant's, its length is the answer's.  ``conversations`` are one request per
assistant turn, each after the answer before it plus a think time; an earlier answer stands in the
next prompt as the simulated one, so that what was generated can hit.

The optional package ``tokenizers`` is needed (``pip install 'kvsim[tokenizers]'``).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import Field

from workloads.errors import WorkloadError
from workloads.log import ReadLog
from workloads.readers.mooncake import first_object
from workloads.readers.rows import Fault, Parse, json_object, json_rows, stream_requests
from workloads.readers.token_ids import Common, RowRest
from workloads.spec import MultiModalItem, Piece, RequestSpec, Segment, TokenIds, merge_pieces, stream_id

NAME = "chat_text"
SUMMARY = "text prompts and chats, tokenised by a local file (JSONL)"
TEXT_NAMES = ("prompt", "text", "text_input")
ASSISTANT = {"assistant", "gpt", "model", "bot", "chatgpt"}
ROLES = {"human": "user", "gpt": "assistant", "chatgpt": "assistant", "bot": "assistant", "model": "assistant"}


class Options(Common):
    """Settings of the text reader."""

    tokenizer: str | None = Field(None, description="path of a tokenizer.json (Hugging Face tokenizers format); needed")
    message_prefix: str = Field("<|im_start|>{role}\n", description="text before a message; {role} is its role")
    message_suffix: str = Field("<|im_end|>\n", description="text after a message")
    think_time_s: float = Field(0.0, ge=0, description="conversations: pause after an answer before the next turn")
    tokens_per_image: int = Field(
        0, ge=0, description="tokens of an image in a message; 0: images are left out, counted"
    )


def sniff(head: str, filename: str) -> bool:
    """Whether the first line has text or messages."""
    row = first_object(head)
    if row is not None:
        if isinstance(row.get("messages"), list) or isinstance(row.get("conversations"), list):
            return True
        return any(isinstance(row.get(name), str) for name in TEXT_NAMES)
    line = head.splitlines()[0]
    return line.startswith("{") and any(f'"{name}"' in line for name in (*TEXT_NAMES, "messages", "conversations"))


def read(path: str | Path, options: Options, log: ReadLog) -> Iterator[RequestSpec]:
    """The requests in order of time, ties in file order.

    Raises:
        WorkloadError: no tokenizer is named, it cannot be read, or the package is missing; or for
            lines that cannot be used, all named at once.
    """
    encode = load_tokenizer(options.tokenizer)
    release: dict[str, float] = {}

    def make() -> Parse:
        return _Parser(str(path), options, encode, release).parse

    return stream_requests(path, json_rows(path), make, log, time_of=lambda spec: release[spec.request_id])


class Encoder:
    """Text to token ids, without adding special tokens; short repeated texts are remembered."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._known: dict[str, TokenIds] = {}

    def __call__(self, text: str) -> TokenIds:
        """The token ids of a text."""
        known = self._known.get(text)
        if known is not None:
            return known
        ids = TokenIds(np.array(self._tokenizer.encode(text, add_special_tokens=False).ids, dtype=np.int64))
        if len(text) < 64 and len(self._known) < 4096:
            self._known[text] = ids
        return ids


def load_tokenizer(path: str | None) -> Encoder:
    """The tokenizer of a local file.

    Raises:
        WorkloadError: none is named, the package is missing, or the file is no tokenizer.
        OSError: the file cannot be opened.
    """
    if path is None:
        raise WorkloadError(
            f"{NAME}.tokenizer: text needs a tokenizer; name a local tokenizer.json (the file beside a model's weights)"
        )
    with open(path, "rb"):
        pass
    try:
        import tokenizers
    except ImportError:
        raise WorkloadError(
            f"{NAME}: reading text needs the optional package tokenizers: pip install 'kvsim[tokenizers]'"
        ) from None
    try:
        return Encoder(tokenizers.Tokenizer.from_file(str(path)))
    except Exception as error:  # the package raises bare Exception
        raise WorkloadError(f"{path}: no tokenizer.json that the package tokenizers can read ({error})") from None


class _Parser:
    """One pass over the file."""

    def __init__(self, path: str, options: Options, encode: Encoder, release: dict[str, float]) -> None:
        self.path = path
        self.options = options
        self.encode = encode
        self.release = release
        self.rest = RowRest(NAME, path, options)

    def parse(self, number: int, text: str, log: ReadLog) -> Sequence[RequestSpec]:
        """One line: a request, or a conversation's requests."""
        row = json_object(text)
        chat = row.get("conversations", row.get("messages"))
        if chat is None:
            prompt = next((row[name] for name in TEXT_NAMES if isinstance(row.get(name), str)), None)
            if prompt is None:
                raise Fault(
                    f"no text in {' or '.join(TEXT_NAMES)}, and no messages or conversations; "
                    f"this row has {', '.join(list(row)[:12])}",
                    "no text",
                )
            pieces = merge_pieces([self.encode(prompt)])
            if not pieces:
                log.count("empty prompts (0 input tokens)", 1, f"{self.path}:{number}")
            return (self._done(RequestSpec(prompt=pieces, **self.rest.fields(number, row, None, log))),)
        if not isinstance(chat, list) or not all(isinstance(message, dict) for message in chat):
            raise Fault("messages or conversations must be a list of objects", "wrong messages")
        if not chat:
            raise Fault("a chat without messages; it has at least one", "wrong messages")
        if "conversations" in row:
            return self._conversation(number, row, chat, log)
        return self._messages(number, row, chat, log)

    def _messages(self, number: int, row: dict[str, Any], chat: list[Any], log: ReadLog) -> Sequence[RequestSpec]:
        """One request: all messages but a last one of the assistant, which is the answer."""
        answer = None
        if _role(chat[-1]) == "assistant":
            answer = self.encode(_text(chat[-1], log)).length
            chat = chat[:-1]
        pieces: list[Piece] = []
        items: list[MultiModalItem] = []
        for message in chat:
            self._add(message, pieces, items, log)
        pieces.append(self.encode(self.options.message_prefix.replace("{role}", "assistant")))
        fields = self.rest.fields(number, row, answer, log)
        return (self._done(RequestSpec(prompt=join_ids(pieces), mm_items=tuple(items), **fields)),)

    def _conversation(self, number: int, row: dict[str, Any], chat: list[Any], log: ReadLog) -> Sequence[RequestSpec]:
        """One request per assistant turn; earlier answers are quoted from their streams."""
        base = self.rest.fields(number, row, 1, log)
        name, first_s = base["request_id"], base["arrival_s"]
        pieces: list[Piece] = []
        items: list[MultiModalItem] = []
        out: list[RequestSpec] = []
        for message in chat:
            if _role(message) != "assistant":
                self._add(message, pieces, items, log)
                continue
            pieces.append(self.encode(self.options.message_prefix.replace("{role}", "assistant")))
            if not out and len(pieces) == 1:
                log.count("conversations that begin with the assistant", 1, f"{self.path}:{number}")
            length = self.encode(_text(message, log)).length
            if length == 0:
                log.count("empty answers (0 output tokens)", 1, f"{self.path}:{number}")
            request_id = f"{name}/{len(out)}"
            before = out[-1].request_id if out else None
            fields = base | {
                "request_id": request_id,
                "output_tokens": length,
                "answer_stream": stream_id("answer", self.rest.scope, request_id),
                "session": base["session"] or name,
                "turn": len(out),
                "after": before,
                "delay_s": self.options.think_time_s if before else 0.0,
            }
            spec = RequestSpec(prompt=join_ids(pieces), mm_items=tuple(items), **fields)
            self.release[request_id] = first_s + len(out) * self.options.think_time_s
            out.append(spec)
            pieces.append(Segment(spec.answer_stream, 0, length))
            pieces.append(self.encode(self.options.message_suffix))
        if not out:
            raise Fault("a conversation without an answer of the assistant; each turn is a request", "no answer")
        if _role(chat[-1]) != "assistant":
            log.count("conversations whose last turn has no answer (that turn is left out)", 1, f"{self.path}:{number}")
        return out

    def _add(self, message: dict[str, Any], pieces: list[Piece], items: list[MultiModalItem], log: ReadLog) -> None:
        """Append a message with its role, its images and its text."""
        pieces.append(self.encode(self.options.message_prefix.replace("{role}", _role(message))))
        content = message.get("content", message.get("value"))
        for part in content if isinstance(content, list) else [content]:
            if isinstance(part, dict) and part.get("type") not in ("text", "input_text"):
                size = self.options.tokens_per_image
                if not size:
                    log.count("images and other parts of messages left out (tokens_per_image is 0)")
                    continue
                identity = hashlib.sha256(json.dumps(part, sort_keys=True).encode()).hexdigest()[:32]
                items.append(MultiModalItem(identity, sum(piece.length for piece in pieces), size))
                pieces.append(Segment(stream_id("image placeholder"), 0, size))
            else:
                pieces.append(self.encode(_part_text(part)))
        pieces.append(self.encode(self.options.message_suffix))

    def _done(self, spec: RequestSpec) -> RequestSpec:
        self.release[spec.request_id] = spec.arrival_s
        return spec


def join_ids(pieces: Sequence[Piece]) -> tuple[Piece, ...]:
    """The same tokens with adjacent literal ids in one array."""
    out: list[Piece] = []
    waiting: list[Any] = []
    for piece in [*pieces, Segment(0, 0, 0)]:
        if isinstance(piece, TokenIds):
            waiting.append(piece.ids)
            continue
        if waiting:
            out.append(TokenIds(np.concatenate(waiting)))
            waiting = []
        out.append(piece)
    return merge_pieces(out)


def _role(message: dict[str, Any]) -> str:
    role = str(message.get("role", message.get("from", "user"))).lower()
    return ROLES.get(role, role)


def _part_text(part: Any) -> str:
    text = part.get("text") if isinstance(part, dict) else part
    if text is None:
        return ""
    if not isinstance(text, str):
        raise Fault(f"a message's content is {str(text)[:40]!r}; it must be text or a list of parts", "wrong messages")
    return text


def _text(message: dict[str, Any], log: ReadLog) -> str:
    content = message.get("content", message.get("value"))
    parts = content if isinstance(content, list) else [content]
    return "".join(_part_text(part) for part in parts)
