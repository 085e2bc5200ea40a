"""Sends frames from interfaces and shows those that arrive there.

Arguments: the interfaces. Input and output: lines of an interface's name and a frame in hexadecimal.
"""

import selectors
import socket
import struct
import sys

SOL_PACKET, PACKET_AUXDATA, PACKET_IGNORE_OUTGOING = 263, 8, 23
VLAN_VALID = 1 << 4


def receive(port):
    """The next frame with its VLAN tag, which the kernel has beside the frame."""
    frame, ancillary, _, _ = port.recvmsg(65536, 256)
    for level, kind, data in ancillary:
        if (level, kind) == (SOL_PACKET, PACKET_AUXDATA):
            status, _, _, _, _, tci, protocol = struct.unpack("=IIIHHHH", data[:20])
            if status & VLAN_VALID:
                frame = frame[:12] + struct.pack("!HH", protocol, tci) + frame[12:]
    return frame


def main():
    selector, ports = selectors.DefaultSelector(), {}
    for name in sys.argv[1:]:
        port = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        port.setsockopt(SOL_PACKET, PACKET_AUXDATA, 1)
        port.setsockopt(SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)
        port.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
        port.bind((name, 3))
        ports[name] = port
        selector.register(port, selectors.EVENT_READ, name)
    selector.register(sys.stdin.buffer.raw, selectors.EVENT_READ, None)
    print("ready", flush=True)
    pending = b""
    while True:
        for key, _ in selector.select():
            if key.data is not None:
                try:
                    print(key.data, receive(key.fileobj).hex(), flush=True)
                except OSError:  # The interface goes.
                    return
                continue
            more = key.fileobj.read(1 << 16)
            if not more:
                return
            *lines, pending = (pending + more).split(b"\n")
            for line in lines:
                name, _, frame = line.decode().partition(" ")
                ports[name].send(bytes.fromhex(frame))


main()
