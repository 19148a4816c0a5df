"""One TCP stream, to measure what a rail carries.

stream.py receive PORT SECONDS   prints Mbit/s over the last SECONDS of the stream (the shaper's bucket empties first)
stream.py send ADDRESS PORT SECONDS
stream.py hear PORT              waits for a datagram
stream.py say ADDRESS PORT       sends a few
stream.py connect ADDRESS PORT   exit code 0: reached (a refusal counts), 1: unreachable, 2: no answer in 2 s
"""
import errno
import socket
import sys
import time


def receive(port, seconds):
    server = socket.create_server(("", port))
    server.settimeout(20)
    stream, _ = server.accept()
    stream.settimeout(20)
    arrivals = []
    total = 0
    while True:
        data = stream.recv(1 << 18)
        if not data:
            break
        total += len(data)
        arrivals.append((time.monotonic(), total))
    end, last = arrivals[-1]
    begin, first = next(a for a in arrivals if a[0] >= end - seconds)
    print(f"{(last - first) * 8 / (end - begin) / 1e6:.1f}")


def send(address, port, seconds):
    deadline = time.monotonic() + 10
    while True:
        try:
            stream = socket.create_connection((address, port), timeout=5)
            break
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
    stream.settimeout(20)
    data = bytes(1 << 18)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        stream.sendall(data)


def connect(address, port):
    try:
        socket.create_connection((address, port), timeout=2).close()
    except ConnectionRefusedError:
        return 0
    except (TimeoutError, socket.timeout):
        return 2
    except OSError as error:
        return 2 if error.errno in (errno.ETIMEDOUT, errno.EHOSTUNREACH) else 1
    return 0


mode, arguments = sys.argv[1], sys.argv[2:]
if mode == "receive":
    receive(int(arguments[0]), float(arguments[1]))
elif mode == "send":
    send(arguments[0], int(arguments[1]), float(arguments[2]))
elif mode == "hear":
    listener = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    listener.bind(("", int(arguments[0])))
    listener.recv(16)
elif mode == "say":
    speaker = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    for _ in range(8):
        try:
            speaker.sendto(b"here", (arguments[0], int(arguments[1])))
        except OSError:  # nobody answers who has the address: as lost as the rest
            pass
        time.sleep(0.1)
else:
    sys.exit(connect(arguments[0], int(arguments[1])))
