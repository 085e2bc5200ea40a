"""A session as a terminal has it: short lines, each answered at once.

session.py serve                        answers lines at port 7022
session.py talk ADDRESS STOP RESULT     sends a line each 20 ms until there is a file STOP; writes to RESULT, now and at the end: the
                                        number of answers, and the longest time that one took, in milliseconds
"""

import os
import socket
import sys
import time

if sys.argv[1] == "serve":
    listener = socket.create_server(("", 7022))
    while True:
        stream, _ = listener.accept()
        with stream:
            while line := stream.recv(100):
                stream.sendall(line)
else:
    _, _, address, stop, result = sys.argv
    stream = socket.create_connection((address, 7022), timeout=20)
    lines, longest = 0, 0.0
    while not os.path.exists(stop) and os.path.isdir(os.path.dirname(stop)):
        line, begun = b"line %d\n" % lines, time.monotonic()
        stream.sendall(line)
        came = b""
        while len(came) < len(line):
            part = stream.recv(100)
            if not part:
                raise ConnectionError("the session has ended")
            came += part
        assert came == line, came
        longest = max(longest, time.monotonic() - begun)
        lines += 1
        with open(result + ".new", "w") as file:
            file.write(f"{lines} {round(longest * 1000)}")
        os.replace(result + ".new", result)
        time.sleep(0.02)
