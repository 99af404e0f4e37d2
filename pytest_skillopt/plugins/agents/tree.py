"""Access files in a folder that an agent may have changed, without following links.

Every part of a path is opened relative to the folder before it, with ``O_NOFOLLOW``: a link instead
of a folder or file is an error, and nothing outside is touched.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import shutil
import stat
from typing import TYPE_CHECKING, NamedTuple

from pytest_skillopt.rollouts.folders import empty_folder

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from pathlib import Path

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_MAKE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_MOST_ENTRIES, _DEEPEST = 50_000, 100
_LARGEST_READ, _MOST_READ = 64 << 20, 256 << 20  # bytes of a file, and of all of them
_WORDS = {
    errno.ELOOP: "it is a link",
    errno.ENOTDIR: "it is a link or a file instead of a folder",
}
_INDEX = 62  # bytes of an entry of git's index before its name


class Entry(NamedTuple):
    """File, link or folder."""

    mode: int
    """Type and permissions."""
    digest: str = ""
    """SHA-256 of the content, or of a link's target; size and time if it was not read."""
    data: bytes | None = b""
    """Content or link target; None if it is too large or was not requested."""
    is_known: bool = True
    """Whether the content was read."""


class Tree:
    """Open folder. Paths are relative to it, with ``/``, decoded by ``os.fsdecode``.

    Methods raise OSError, with the path, if a path cannot be reached.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        try:
            self._fd = os.open(root, _FOLDER)
        except OSError as error:
            raise _named(error, str(root)) from None

    def close(self) -> None:
        os.close(self._fd)

    @contextlib.contextmanager
    def folder(self, path: str, *, make: bool = False) -> Iterator[int]:
        """Open a folder below; ``make`` creates it and its parents if they are missing."""
        held = os.dup(self._fd)
        done = ""
        try:
            for name in filter(None, path.split("/")):
                _check_name(name)
                done = f"{done}/{name}".lstrip("/")
                if make:
                    with contextlib.suppress(FileExistsError):
                        os.mkdir(name, dir_fd=held)
                try:
                    below = os.open(name, _FOLDER, dir_fd=held)
                except OSError as error:
                    raise _named(error, done) from None
                os.close(held)
                held = below
            yield held
        finally:
            os.close(held)

    @contextlib.contextmanager
    def at(self, path: str, *, make: bool = False) -> Iterator[tuple[int, str]]:
        """Open the folder of a path; yield its descriptor and the name in it."""
        above, _, name = path.rpartition("/")
        _check_name(name)
        with self.folder(above, make=make) as fd:
            try:
                yield fd, name
            except OSError as error:
                raise _named(error, path) from None

    def read(self, path: str, most: int) -> bytes:
        """Read a file, up to ``most`` bytes."""
        with self.at(path) as (fd, name), open(os.open(name, _READ, dir_fd=fd), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise OSError("is not a regular file")
            return file.read(most)

    def write(self, path: str, data: bytes, mode: int) -> None:
        """Write a new file or link, with the type and permissions of ``mode``."""
        with self.at(path, make=True) as (fd, name):
            if stat.S_ISLNK(mode):
                os.symlink(data, os.fsencode(name), dir_fd=fd)
            else:
                with open(os.open(name, _MAKE, 0o600, dir_fd=fd), "wb") as file:
                    file.write(data)
                    os.fchmod(file.fileno(), stat.S_IMODE(mode))

    def append(self, path: str, text: str) -> None:
        """Append to a file; create it if it is missing."""
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK
        with (
            self.at(path, make=True) as (fd, name),
            open(os.open(name, flags, 0o644, dir_fd=fd), "a", encoding="utf-8") as file,
        ):
            file.write(text)

    def copy(self, source: Path) -> None:
        """Copy the content of another folder into this one; links stay links."""
        for folder, folders, names in os.walk(source):
            here = "" if folder == str(source) else f"{os.path.relpath(folder, source)}/"
            linked = [name for name in folders if os.path.islink(os.path.join(folder, name))]
            for name in folders:
                if name not in linked:
                    self.make_folder(f"{here}{name}", os.stat(f"{folder}/{name}").st_mode | 0o700)
            for name in (*names, *linked):
                self._copy_file(f"{folder}/{name}", f"{here}{name}")

    def _copy_file(self, source: str, path: str) -> None:
        about = os.lstat(source)
        with contextlib.suppress(FileNotFoundError), self.at(path) as (fd, name):
            os.unlink(name, dir_fd=fd)
        if stat.S_ISLNK(about.st_mode):
            self.write(path, os.fsencode(os.readlink(source)), about.st_mode)
        elif stat.S_ISREG(about.st_mode):
            with (
                self.at(path) as (fd, name),
                open(source, "rb") as given,
                open(os.open(name, _MAKE, 0o600, dir_fd=fd), "wb") as file,
            ):
                shutil.copyfileobj(given, file)
                file.flush()
                os.fchmod(file.fileno(), stat.S_IMODE(about.st_mode))
                os.utime(file.fileno(), ns=(about.st_atime_ns, about.st_mtime_ns))
        else:
            raise OSError(f"{source} is neither a file nor a folder nor a link")

    def make_folder(self, path: str, mode: int) -> None:
        with self.folder(path, make=True) as fd:
            os.fchmod(fd, stat.S_IMODE(mode))

    def remove(self, path: str, *, only_empty: bool = False) -> None:
        """Remove a file, a link, or a folder with its content."""
        with self.at(path) as (fd, name):
            if stat.S_ISDIR(os.lstat(name, dir_fd=fd).st_mode):
                if not only_empty:
                    with self.folder(path) as below:
                        empty_folder(below)
                os.rmdir(name, dir_fd=fd)
            else:
                os.unlink(name, dir_fd=fd)

    def entries(
        self,
        below: str = "",
        *,
        left_out: Collection[str] = (),
        room: int = 0,
        content: bool = True,
    ) -> dict[str, Entry]:
        """List everything below a folder, by path.

        Args:
            below: the folder.
            left_out: paths to skip.
            room: total bytes of content to return.
            content: whether to read the files, or only names and modes.

        Raises:
            OSError: more than 50,000 entries, folders nested deeper than 100, or not reachable.
        """
        found: dict[str, Entry] = {}
        unread = _MOST_READ if content else -1
        with self.folder(below) as top:
            for folder, inner, names, fd in os.fwalk(".", onerror=_pass_over, dir_fd=top):
                here = f"{folder}/"[2:]
                if here.count("/") > _DEEPEST:
                    raise OSError(f"folders are nested deeper than {_DEEPEST}: {here[:99]}")
                if here:
                    found[here[:-1]] = Entry(os.fstat(fd).st_mode)
                for listed in (inner, names):
                    listed[:] = sorted(name for name in listed if here + name not in left_out)
                for name in (*inner, *names):
                    with contextlib.suppress(FileNotFoundError):
                        about = os.lstat(name, dir_fd=fd)
                        entry = _entry(fd, name, about, room, unread, here + name)
                        found[here + name] = entry
                        room -= len(entry.data or b"")
                        unread -= about.st_size if entry.is_known else 0
                    if len(found) > _MOST_ENTRIES:
                        raise OSError(f"more than {_MOST_ENTRIES} files")
        return found


def _pass_over(error: OSError) -> None:
    """Leave a folder out that cannot be read, or is no longer there."""
    if not isinstance(error, PermissionError | FileNotFoundError):
        raise error


def _entry(fd: int, name: str, about: os.stat_result, room: int, unread: int, path: str) -> Entry:
    mode = about.st_mode
    size = about.st_size
    if stat.S_ISLNK(mode):
        data = os.fsencode(os.readlink(name, dir_fd=fd))
        return Entry(mode, hashlib.sha256(data).hexdigest(), data)
    if stat.S_ISDIR(mode):  # unless it can be opened afterwards
        return Entry(mode, "unreadable", None, False)
    if not stat.S_ISREG(mode):
        return Entry(mode, "special", None)
    if size > min(unread, _LARGEST_READ):
        return Entry(mode, f"unread {size} {about.st_mtime_ns}", None, False)
    try:
        with open(os.open(name, _READ, dir_fd=fd), "rb") as file:
            data = file.read(size)
    except PermissionError:
        return Entry(mode, f"unreadable {size} {about.st_mtime_ns}", None, False)
    lasting = _without_times(data) if path.endswith("index") and is_git(path) else data
    kept = data if size <= room else None
    return Entry(mode, hashlib.sha256(lasting).hexdigest(), kept)


def is_git(path: str) -> bool:
    """Return whether a path is inside a ``.git`` folder."""
    return ".git" in path.split("/")


def _without_times(index: bytes) -> bytes:
    """Drop from git's index what differs in every copy: times, inodes, checksum."""
    version = int.from_bytes(index[4:8])
    count = int.from_bytes(index[8:12])
    if index[:4] != b"DIRC" or version not in (2, 3):
        return index
    kept = [index[:12]]
    at = 12
    for _ in range(count):
        end = index.find(b"\0", at + _INDEX)
        if end < 0:
            return index
        kept.append(index[at + 24 : at + 28] + index[at + 36 : end])
        at += (end - at) // 8 * 8 + 8
    return b"\0".join([*kept, index[at:-20]])


def _check_name(name: str) -> None:
    if name in ("", ".", ".."):
        raise OSError(f"{name!r} is not a name in a folder")


def _named(error: OSError, path: str) -> OSError:
    """Return the error with the whole path, and a clear text for links."""
    if error.errno is None:
        return OSError(f"{path}: {error}")
    return OSError(error.errno, _WORDS.get(error.errno, error.strerror), path)
