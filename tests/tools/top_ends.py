"""top_ends.py KNET PID: the screen of `knet top PID` is ended by signals, with their exit codes, and by the end of its
terminal."""
import os
import pty
import select
import signal
import sys
import time

LEFT = b"\x1b[?1049l"  # xterm leaves the screen


def start(ignored):
    child, terminal = pty.fork()
    if child == 0:
        for number in ignored:
            signal.signal(number, signal.SIG_IGN)
        os.environ["TERM"] = "xterm"
        os.execv(sys.argv[1], ["knet", "top", sys.argv[2], "--every", "100ms"])
    shown = b""
    while b"by time" not in shown:
        shown += os.read(terminal, 65536)
        if b"without ncurses" in shown:
            sys.exit(77)
    return child, terminal


def rest(terminal):
    shown = b""
    while select.select([terminal], [], [], 30)[0]:
        try:
            part = os.read(terminal, 65536)
        except OSError:  # closed at the other end
            break
        shown += part
    return shown


def code_of(child):
    for _ in range(1000):
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.WEXITSTATUS(status) if os.WIFEXITED(status) else -os.WTERMSIG(status)
        time.sleep(0.02)
    os.kill(child, signal.SIGKILL)
    return "none: it goes on"


for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    viewer, screen = start([])
    os.kill(viewer, number)
    last = rest(screen)
    code = code_of(viewer)
    assert code == 128 + number, f"exit code {code} after {number!r}"
    assert LEFT in last, f"{number!r} leaves the screen as it is: {last[-300:]!r}"
    os.close(screen)

for ignored in ([], [signal.SIGHUP]):
    viewer, screen = start(ignored)
    os.close(screen)
    code = code_of(viewer)
    assert code == 128 + signal.SIGHUP, f"exit code {code} without a terminal, {ignored} ignored"
