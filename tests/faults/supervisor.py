"""Runs Python code in a forked child whose every change to a file is asked for first.

The kernel stops the child before each system call that would change a file (seccomp's user notification, Linux 5.5 and
later) and asks here what to do: let it through, fail it with an error of the system, or kill the child. SQLite, Arrow
and DuckDB are seen in the same way as Python, threads too, and nothing of the program under test is patched.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import platform
import resource
import select
import signal
import socket
import struct
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

# The system calls that change files, by machine. Which argument names the file: a path, a folder and a path in it, a
# descriptor; for a renaming that of the new name.
PATH, AT, FILE = "path", "at", "file"
CALLS: dict[str, dict[int, tuple[str, str, int]]] = {
    "x86_64": {
        2: ("open", PATH, 0),
        257: ("open", AT, 0),
        85: ("open", PATH, 0),
        1: ("write", FILE, 0),
        18: ("write", FILE, 0),
        20: ("write", FILE, 0),
        296: ("write", FILE, 0),
        328: ("write", FILE, 0),
        40: ("write", FILE, 0),
        74: ("sync", FILE, 0),
        75: ("sync", FILE, 0),
        82: ("rename", PATH, 1),
        264: ("rename", AT, 2),
        316: ("rename", AT, 2),
        86: ("link", PATH, 1),
        265: ("link", AT, 2),
        88: ("link", PATH, 1),
        266: ("link", AT, 1),
        83: ("mkdir", PATH, 0),
        258: ("mkdir", AT, 0),
        87: ("unlink", PATH, 0),
        263: ("unlink", AT, 0),
        84: ("rmdir", PATH, 0),
        76: ("truncate", PATH, 0),
        77: ("truncate", FILE, 0),
        285: ("allocate", FILE, 0),
        90: ("chmod", PATH, 0),
        91: ("chmod", FILE, 0),
        268: ("chmod", AT, 0),
    },
    "aarch64": {
        56: ("open", AT, 0),
        64: ("write", FILE, 0),
        68: ("write", FILE, 0),
        66: ("write", FILE, 0),
        70: ("write", FILE, 0),
        71: ("write", FILE, 0),
        82: ("sync", FILE, 0),
        83: ("sync", FILE, 0),
        38: ("rename", AT, 2),
        276: ("rename", AT, 2),
        37: ("link", AT, 2),
        36: ("link", AT, 1),
        34: ("mkdir", AT, 0),
        35: ("unlink", AT, 0),
        45: ("truncate", PATH, 0),
        46: ("truncate", FILE, 0),
        47: ("allocate", FILE, 0),
        52: ("chmod", FILE, 0),
        53: ("chmod", AT, 0),
    },
}
# Those that look at files. They are asked about where a device is to fail altogether.
LOOKS: dict[str, dict[int, tuple[str, str, int]]] = {
    "x86_64": {
        4: ("look", PATH, 0),
        6: ("look", PATH, 0),
        21: ("look", PATH, 0),
        262: ("look", AT, 0),
        269: ("look", AT, 0),
        332: ("look", AT, 0),
        439: ("look", AT, 0),
    },
    "aarch64": {48: ("look", AT, 0), 79: ("look", AT, 0), 291: ("look", AT, 0), 439: ("look", AT, 0)},
}
SECCOMP = {"x86_64": 317, "aarch64": 277}
CREAT = {85}  # opens for writing whatever its flags, and has none
RECEIVE, ANSWER = 0xC0502100, 0xC0182101  # ioctls of a listener
CONTINUE = 1
AT_CWD = 0xFFFFFF9C
NEEDS_ROOM = {"open", "write", "mkdir", "link", "allocate"}  # what a full disk refuses
MACHINE = platform.machine()


@dataclass(frozen=True)
class Operation:
    """A change to a file that is about to be made."""

    kind: str
    path: str  # of the file, below the watched folder
    makes: bool = False  # opens a file that may not be there yet

    @property
    def needs_room(self) -> bool:
        return self.kind in NEEDS_ROOM and (self.kind != "open" or self.makes)

    def __str__(self) -> str:
        return f"{self.kind} {self.path}"


@dataclass(frozen=True)
class Ended:
    """How a child ended: its exit code (negative: the signal that killed it), what it showed, and what it changed."""

    code: int
    shown: str
    operations: tuple[Operation, ...] = ()
    hung: bool = False


# What to do about the n-th operation, counted from 0: 0 lets it through, a positive number is the system's error
# that it fails with, a negative one the signal that is sent. STARVE lets it through, and from there on the process gets
# no more memory from the system than it has.
STARVE = -10_000
Decide = Callable[[int, Operation], int]


def can_supervise() -> bool:
    """Does this system let a process be asked about its system calls?"""
    if sys.platform != "linux" or MACHINE not in CALLS:
        return False
    with tempfile.TemporaryDirectory() as folder:
        ended = supervised(lambda: os.mkdir("made"), Path(folder), lambda *_: errno.ENOSPC)
    return "No space left" in ended.shown


def let_through(_number: int, _operation: Operation) -> int:
    return 0


def plain(work: Callable[[], None], folder: Path, *, seconds: float = 120) -> Ended:
    """Run `work` in a forked child in `folder`, and watch nothing of it."""
    return ended_of(started(work, folder), seconds)


@dataclass(frozen=True)
class Child:
    """A process that was forked and has not been waited for."""

    process: int
    shown: Path


def started(work: Callable[[], None], folder: Path, prepare: Callable[[], None] | None = None) -> Child:
    """Fork a child that runs `work` in `folder`, its screen a file; `prepare` is called in it first."""
    handle, name = tempfile.mkstemp(prefix="shown-")
    sys.stdout.flush()
    sys.stderr.flush()
    process = os.fork()
    if process:
        os.close(handle)
        return Child(process, Path(name))
    code = 70
    try:
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.dup2(handle, 1)
        os.dup2(handle, 2)
        sys.stdout = os.fdopen(1, "w", buffering=1, closefd=False)
        sys.stderr = os.fdopen(2, "w", buffering=1, closefd=False)
        os.environ.update(COLUMNS="200", TERM="dumb", TMPDIR=str(folder / "tmp"))
        tempfile.tempdir = None
        os.chdir(folder)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        if prepare is not None:
            prepare()
        code = _code_of(work)
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)


def supervised(
    work: Callable[[], None], folder: Path, decide: Decide, *, looks: bool = False, seconds: float = 120
) -> Ended:
    """Run `work` in a forked child in `folder`, and let `decide` say what happens to its changes of files below it.

    With `looks` it says too what happens when a file is looked at or opened for reading; that is not counted.
    """
    folder = folder.resolve()
    here, there = socket.socketpair(socket.AF_UNIX)

    def watch() -> None:
        listener = _install([*CALLS[MACHINE], *(LOOKS[MACHINE] if looks else ())])
        socket.send_fds(there, [b"l"], [listener])
        os.close(listener)
        here.close()
        there.close()

    child = started(work, folder, watch)
    there.close()
    _, [listener], _, _ = socket.recv_fds(here, 1, 1)
    here.close()
    try:
        operations, hung = _answer(listener, child.process, folder, decide, time.monotonic() + seconds)
    finally:
        os.close(listener)
    ended = ended_of(child, seconds)
    return Ended(ended.code, ended.shown, tuple(operations), hung or ended.hung)


def _answer(listener: int, process: int, folder: Path, decide: Decide, deadline: float) -> tuple[list[Operation], bool]:
    operations: list[Operation] = []
    poll = select.poll()
    poll.register(listener, select.POLLIN)
    while True:
        left = deadline - time.monotonic()
        ready = poll.poll(max(0, left) * 1000)
        if not ready:
            os.kill(process, signal.SIGKILL)
            return operations, True
        if not ready[0][1] & select.POLLIN:  # nobody is left to be asked about
            return operations, False
        request = bytearray(80)
        try:
            fcntl.ioctl(listener, RECEIVE, request)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.EINTR):  # killed, or interrupted, before it was heard
                continue
            raise
        identity, thread, _, number, _, _, *arguments = struct.unpack("QIIiIQ6Q", request)
        operation = _operation(thread, number, arguments, folder)
        verdict = 0
        if operation is not None:
            verdict = decide(len(operations), operation)
            if operation.kind != "look":
                operations.append(operation)
        if verdict == STARVE:
            pages = int(Path(f"/proc/{process}/statm").read_text().split()[0])
            resource.prlimit(process, resource.RLIMIT_AS, (pages * resource.getpagesize(),) * 2)
            verdict = 0
        if verdict < 0:
            os.kill(process, -verdict)
        if verdict == -signal.SIGKILL:  # no answer: the change might be made before the signal arrives
            continue
        failed = (-verdict, 0) if verdict > 0 else (0, CONTINUE)
        with suppress(FileNotFoundError):  # gone meanwhile
            fcntl.ioctl(listener, ANSWER, struct.pack("QqiI", identity, 0, *failed))


def _operation(thread: int, number: int, arguments: list[int], folder: Path) -> Operation | None:
    """What a system call would change, if that is below the folder."""
    kind, named, place = (CALLS[MACHINE] | LOOKS[MACHINE])[number]
    makes = False
    if kind == "open":
        flags = os.O_WRONLY | os.O_CREAT if number in CREAT else arguments[1 + (named == AT)]
        if not flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
            kind = "look"
        makes = bool(flags & os.O_CREAT)
    try:
        if named == FILE:
            path = os.readlink(f"/proc/{thread}/fd/{arguments[place] & 0xFFFFFFFF}")
        else:
            text = _text(thread, arguments[place + (named == AT)])
            start = arguments[place] & 0xFFFFFFFF if named == AT else AT_CWD
            above = f"/proc/{thread}/cwd" if start == AT_CWD else f"/proc/{thread}/fd/{start}"
            path = os.path.normpath(os.path.join(os.readlink(above), text))
    except OSError:
        return None
    inside = os.path.relpath(path, folder)
    return None if inside.startswith("..") or not path.startswith("/") else Operation(kind, inside, makes)


def _text(thread: int, address: int) -> str:
    """A path in the memory of the child."""
    found = b""
    with open(f"/proc/{thread}/mem", "rb", buffering=0) as memory:
        memory.seek(address)
        while b"\0" not in found and len(found) < 4096:
            found += memory.read(256 - (address + len(found)) % 256)
    return os.fsdecode(found.split(b"\0")[0])


def _install(numbers: list[int]) -> int:
    """Let the kernel ask about these calls, for this process and its threads; returns the listener."""
    load, equal, give = 0x20, 0x15, 0x06
    program = [(load, 0, 0, 0), *((equal, len(numbers) - at, 0, each) for at, each in enumerate(numbers))]
    program += [(give, 0, 0, 0x7FFF0000), (give, 0, 0, 0x7FC00000)]  # let through; ask
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *each) for each in program))
    whole = ctypes.create_string_buffer(struct.pack("HxxxxxxQ", len(program), ctypes.addressof(code)))
    system = ctypes.CDLL(None, use_errno=True)
    if system.prctl(38, 1, 0, 0, 0):  # no new privileges, which a filter needs
        raise OSError(ctypes.get_errno(), "no new privileges")
    listener: int = system.syscall(
        ctypes.c_long(SECCOMP[MACHINE]), ctypes.c_ulong(1), ctypes.c_ulong(8), ctypes.c_void_p(ctypes.addressof(whole))
    )
    if listener < 0:
        raise OSError(ctypes.get_errno(), "no filter of system calls")
    return listener


def _code_of(work: Callable[[], None]) -> int:
    try:
        work()
    except SystemExit as stop:
        if isinstance(stop.code, int) or stop.code is None:
            return stop.code or 0
        print(stop.code, file=sys.stderr)
        return 1
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def ended_of(child: Child, seconds: float) -> Ended:
    """Wait for a child; one that takes too long is killed."""
    deadline, hung = time.monotonic() + seconds, False
    while not (waited := os.waitpid(child.process, os.WNOHANG))[0]:
        if time.monotonic() > deadline:
            os.kill(child.process, signal.SIGKILL)
            hung = True
            waited = os.waitpid(child.process, 0)
            break
        time.sleep(0.002)
    shown = child.shown.read_text(encoding="utf-8", errors="replace")
    child.shown.unlink()
    return Ended(os.waitstatus_to_exitcode(waited[1]), shown, hung=hung)
