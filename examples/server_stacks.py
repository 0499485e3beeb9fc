"""Starts a real server, Python's own HTTP server, keeps some of its threads busy with slow clients, and
prints every thread's stack as `unspool stack PID` does: `make demo`."""

import re
import socket
import subprocess
import sys
import time

CLIENTS = 2


def start_server() -> tuple[subprocess.Popen[str], int]:
    """The server, and the port that it chose."""
    command = [sys.executable, "-u", "-m", "http.server", "--bind", "127.0.0.1", "0"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert server.stdout is not None
    match = re.search(r"port (\d+)", server.stdout.readline())
    if match is None:
        server.kill()
        raise SystemExit("the HTTP server did not start")
    return server, int(match[1])


def main() -> int:
    """Exit status: that of `unspool stack`."""
    server, port = start_server()
    try:
        clients = [socket.create_connection(("127.0.0.1", port), timeout=10) for _ in range(CLIENTS)]
        for client in clients:
            client.sendall(b"GET / HTTP/1.1\r\n")  # and no more: a thread of the server waits for the rest
        time.sleep(0.3)
        print(f"$ unspool stack {server.pid}", flush=True)
        return subprocess.call([sys.executable, "-m", "unspool", "stack", str(server.pid)])
    finally:
        server.kill()
        server.wait()


if __name__ == "__main__":
    sys.exit(main())
