"""What is on the wire that tunnels leave by: u1 is its far end.

wire.py sends COMMAND     runs the command, and prints the tunnels' packets that it makes leave, without Ethernet addresses
wire.py gre REMOTE HEX    puts GRE of these bytes on the wire, from the host whose address ends in REMOTE, of IPv6 with a colon
wire.py PORT REMOTE HEX   likewise, with UDP to this port
"""

import socket
import subprocess
import sys
import time

OURS, FAR = "0200 0000 000a", "0200 0000 000b"


def is_of_tunnel(frame):
    if frame[12:14] == b"\x08\x00":
        return frame[23] == 47 or (frame[23] == 17 and frame[36:38] in (b"\x12\xb5", b"\x21\x18"))
    return frame[12:14] == b"\x86\xdd" and frame[20] == 47


def checksum(words):
    total = sum(int.from_bytes(words[at : at + 2].ljust(2, b"\0"), "big") for at in range(0, len(words), 2))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return (~total & 0xFFFF).to_bytes(2, "big")


def in_ip(remote, protocol, body):
    ends = bytes.fromhex(OURS) + bytes.fromhex(FAR)
    if remote.startswith(":"):
        address = lambda last: b"\xfd" + bytes(14) + bytes([last])
        ip = b"\x60\0\0\0" + len(body).to_bytes(2, "big") + bytes([protocol, 64]) + address(int(remote[1:])) + address(1)
        return ends + b"\x86\xdd" + ip + body
    ip = b"\x45\0" + (20 + len(body)).to_bytes(2, "big") + b"\0\0\x40\0\x40" + bytes([protocol])
    ip += b"\0\0\xc0\0\2" + bytes([int(remote)]) + b"\xc0\0\2\1"
    ip = ip[:10] + checksum(ip) + ip[12:]
    return ends + b"\x08\0" + ip + body


wire = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
wire.bind(("u1", 0))
what = sys.argv[1]
if what == "gre":
    gre = bytes.fromhex(sys.argv[3])
    if gre[0] & 0x80 and gre[4:6] == b"\0\0":
        gre = gre[:4] + checksum(gre) + gre[6:]
    wire.send(in_ip(sys.argv[2], 47, gre))
elif what.isdigit():
    body = bytes.fromhex(sys.argv[3])
    udp = b"\xd0\0" + int(what).to_bytes(2, "big") + (8 + len(body)).to_bytes(2, "big") + b"\0\0"
    wire.send(in_ip(sys.argv[2], 17, udp + body))
else:
    subprocess.run(sys.argv[2], shell=True, check=False)
    end = time.monotonic() + 1
    while (left := end - time.monotonic()) > 0:
        wire.settimeout(left)
        try:
            frame = wire.recv(65536)
        except TimeoutError:
            break
        if is_of_tunnel(frame):
            print(frame[12:].hex(" ", 2))
