"""Reading trace files: plain or gzip by content, folders and .tgz archives; faults named with file and line."""

from __future__ import annotations

import gzip
import tarfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, cast

from workloads.errors import WorkloadError
from workloads.log import ReadLog

HEAD_BYTES = 1 << 18
LONG_LINE_BYTES = 1 << 26
MAX_FILES = 20_000
_GZIP = b"\x1f\x8b"


@contextmanager
def open_bytes(path: str | Path) -> Iterator[IO[bytes]]:
    """The bytes of a file, decompressed when it begins as gzip does, whatever its name.

    Raises:
        OSError: the file cannot be opened.
    """
    with open(path, "rb") as raw:
        begins = raw.read(2)
        raw.seek(0)
        if begins == _GZIP:
            with gzip.GzipFile(fileobj=raw) as unpacked:
                yield cast(IO[bytes], unpacked)
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


def decoded_lines(stream: IO[bytes], name: str, log: ReadLog) -> Iterator[tuple[int, str]]:
    """As `text_lines`, of an open binary stream; `name` is for messages."""
    number = 0
    while True:
        try:
            line = stream.readline()
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
        if not line:
            break
        number += 1
        try:
            text = line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            what = f"not text (byte {line[error.start]:#04x} is no UTF-8); a trace is plain or gzip text in UTF-8"
            log.bad_line(what, f"{name}:{number}", "not UTF-8 text")
            continue
        yield number, text.rstrip("\r\n")
    if number == 0:
        raise WorkloadError(f"{name}: the file is empty; a trace has at least one request")


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
