"""top_ends.py KNET PID: the screen of `knet top PID` is ended by signals, with their exit codes, also in the background, and
by the end of its terminal."""
import os
import pty
import select
import signal
import sys
import time

LEFT = b"\x1b[?1049l"  # xterm leaves the screen


def become_viewer():
    os.environ["TERM"] = "xterm"
    os.execv(sys.argv[1], ["knet", "top", sys.argv[2], "--every", "100ms"])


def job(in_background):
    """As a shell starts a job; SIGTTOU would stop the one that gives the terminal to itself."""
    child = os.fork()
    if child == 0:
        os.setpgid(0, 0)
        if not in_background:
            os.tcsetpgrp(0, os.getpgrp())
        signal.signal(signal.SIGTTOU, signal.SIG_DFL)
        become_viewer()
    return child


def end_as(child):
    code = code_of(child)
    os._exit(code if isinstance(code, int) else 1)


def shell_of_background_job():
    end_as(job(True))


def shell_of_job_moved_to_background():
    child = job(False)
    signal.sigwait([signal.SIGUSR1])
    os.tcsetpgrp(0, os.getpgrp())
    os.kill(child, signal.SIGTERM)
    end_as(child)


def start_shell(shell):
    child, terminal = pty.fork()
    if child == 0:
        signal.signal(signal.SIGTTOU, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
        shell()
    return child, terminal


def start(ignored):
    child, terminal = pty.fork()
    if child == 0:
        for number in ignored:
            signal.signal(number, signal.SIG_IGN)
        become_viewer()
    wait_for_screen(terminal)
    return child, terminal


def wait_for_screen(terminal):
    shown = b""
    while b"by time" not in shown:
        shown += os.read(terminal, 65536)
        if b"without ncurses" in shown:
            sys.exit(77)


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

shell, screen = start_shell(shell_of_background_job)
last = rest(screen)
code = code_of(shell)
assert code == 0 and b" work " in last, f"exit code {code} in the background: {last!r}"
os.close(screen)

shell, screen = start_shell(shell_of_job_moved_to_background)
wait_for_screen(screen)
os.kill(shell, signal.SIGUSR1)
last = rest(screen)
code = code_of(shell)
assert code == 128 + signal.SIGTERM, f"exit code {code} of a job that was moved to the background"
assert LEFT in last, f"a job in the background leaves the screen as it is: {last[-300:]!r}"
