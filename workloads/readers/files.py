"""Reading trace files: plain or gzip by content, folders and .tgz archives; faults named with file and line."""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from workloads.errors import WorkloadError
from workloads.log import ReadLog

if TYPE_CHECKING:
    import tarfile

HEAD_BYTES = 1 << 18
LONG_LINE_BYTES = 1 << 26
MAX_FILES = 20_000
_GZIP = b"\x1f\x8b"
_BLOCK_BYTES = io.DEFAULT_BUFFER_SIZE  # what gzip unpacks at once: more would lose more where the data is damaged


class Bytes(Protocol):
    """An open binary stream."""

    def read(self, size: int = -1, /) -> bytes:
        """As many bytes as asked for, fewer at the end only."""

    def read1(self, size: int = -1, /) -> bytes:
        """Bytes from one read of what lies below, at most as many as asked for; none at the end only."""

    def readline(self, size: int = -1, /) -> bytes:
        """Bytes up to and with the next line end."""


@contextmanager
def open_bytes(path: str | Path) -> Iterator[Bytes]:
    """The bytes of a file, decompressed when it begins as gzip does, whatever its name.

    Raises:
        OSError: the file cannot be opened.
    """
    with open(path, "rb") as raw:
        begins = raw.read(2)
        raw.seek(0)
        if begins == _GZIP:
            with gzip.GzipFile(fileobj=raw) as unpacked:
                yield unpacked
        else:
            yield raw


def text_lines(path: str | Path, log: ReadLog) -> Iterator[tuple[int, str]]:
    """(line number from 1, text without its line end) of every line, blank ones too.

    With `log.skip_bad_lines`, lines that are no text are counted and left out, and what a file that
    is cut short still holds is read.

    Raises:
        WorkloadError: the file is empty, the gzip data is cut short or damaged, a line is no UTF-8.
        OSError: the file cannot be read.
    """
    with open_bytes(path) as stream:
        yield from decoded_lines(stream, str(path), log)


def decoded_lines(stream: Bytes, name: str, log: ReadLog) -> Iterator[tuple[int, str]]:
    """As `text_lines`, of an open binary stream; `name` is for messages."""
    number = 0
    begun: list[bytes] = []  # of a line whose end has not been read
    while True:
        try:
            block = stream.read1(_BLOCK_BYTES)
        except EOFError:
            what = "the gzip data ends early, in or after this line (an incomplete download?); fetch the file again"
            log.bad_line(what, f"{name}:{number + 1}", "gzip data cut short: all behind it")
            number += 1
            break
        except (gzip.BadGzipFile, zlib.error) as error:
            what = f"damaged gzip data ({error}); fetch the file again"
            log.bad_line(what, f"{name}:{number + 1}", "gzip data damaged: all behind it")
            number += 1
            break
        end = block.rfind(b"\n")
        if block and end < 0:
            begun.append(block)
            continue
        begun.append(block[:end] if block else b"")
        content = b"".join(begun)
        if not block and not content:
            break
        begun = [block[end + 1 :]]
        first, encoding = number + 1, "utf-8-sig" if number == 0 else "utf-8"
        number += content.count(b"\n") + 1
        try:
            lines = content.decode(encoding).split("\n")
        except UnicodeDecodeError:
            yield from _text_among(content.split(b"\n"), first, name, log)
        else:
            yield from enumerate([line.rstrip("\r") for line in lines] if b"\r" in content else lines, first)
        if not block:
            break
    if number == 0:
        raise WorkloadError(f"{name}: the file is empty; a trace has at least one request")


def _text_among(lines: list[bytes], first: int, name: str, log: ReadLog) -> Iterator[tuple[int, str]]:
    """Those of the lines that are text; `first` is the number of the first one."""
    for number, line in enumerate(lines, first):
        try:
            text = line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            what = f"not text (byte {line[error.start]:#04x} is no UTF-8); a trace is plain or gzip text in UTF-8"
            log.bad_line(what, f"{name}:{number}", "not UTF-8 text")
        else:
            yield number, text.rstrip("\r")


def is_archive(path: str | Path) -> bool:
    """Whether a path is a folder or a tar archive, plain or compressed.

    Raises:
        OSError: the file cannot be opened.
    """
    if Path(path).is_dir():
        return True
    with open_bytes(path) as stream:
        try:
            header = stream.read(512)
        except (EOFError, zlib.error, gzip.BadGzipFile):
            return False
    return len(header) == 512 and header[257:262] == b"ustar"


def archive_names(path: str | Path) -> list[str]:
    """Relative paths of the files of a folder or tar archive, sorted.

    Raises:
        WorkloadError: the archive is cut short or damaged, or there are no files or too many for a trace.
        OSError: it cannot be read.
    """
    root = Path(path)
    if root.is_dir():
        names = []
        for found in root.rglob("*"):
            if found.is_file():
                names.append(str(found.relative_to(root)))
            if len(names) > MAX_FILES:
                raise WorkloadError(f"{path}: more than {MAX_FILES:,} files; name the folder that holds just the trace")
    else:
        with _opened_tar(path) as archive:
            names = [member.name for member in archive if member.isfile()]
    if not names:
        raise WorkloadError(f"{path}: holds no files")
    return sorted(names)


def archive_members(path: str | Path, wanted: Callable[[str], bool]) -> dict[str, bytes]:
    """Content of those files of a folder or tar archive whose relative path is wanted, in sorted order.

    For archives of some megabytes: they are held in memory, as their members refer to one another.

    Raises:
        WorkloadError, OSError: as `archive_names`.
    """
    root = Path(path)
    if root.is_dir():
        return {name: (root / name).read_bytes() for name in archive_names(path) if wanted(name)}
    found = {}
    with _opened_tar(path) as archive:
        for member in archive:
            content = archive.extractfile(member) if member.isfile() and wanted(member.name) else None
            if content is not None:
                found[member.name] = content.read()
    return dict(sorted(found.items()))


@contextmanager
def _opened_tar(path: str | Path) -> Iterator[tarfile.TarFile]:
    import tarfile  # few traces are archives

    try:
        with tarfile.open(path, "r:*") as archive:
            yield archive
    except (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise WorkloadError(f"{path}: the archive is cut short or damaged ({error}); fetch it again") from None


def read_head(path: str | Path) -> str:
    """What a format is told from: the first non-blank lines of a file, or the members' names of a folder or .tgz.

    The first line is whole up to 64 MiB, the last one may be cut.

    Raises:
        WorkloadError: the file is empty or no text.
        OSError: it cannot be read.
    """
    if is_archive(path):
        return "\n".join(archive_names(path))
    data = b""
    with open_bytes(path) as stream:
        try:
            while len(data) < HEAD_BYTES:
                line = stream.readline(HEAD_BYTES if data else LONG_LINE_BYTES)
                if not line:
                    break
                data += line
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            if not data:
                raise WorkloadError(
                    f"{path}:1: the gzip data is cut short or damaged ({error}); fetch it again"
                ) from None
    if data and b"\0" in data:
        raise WorkloadError(f"{path}:1: not text; a trace is plain or gzip text in UTF-8")
    text = data.decode("utf-8-sig", errors="replace").lstrip("\r\n \t")
    if not text:
        raise WorkloadError(f"{path}: the file is empty; a trace has at least one request")
    return text
