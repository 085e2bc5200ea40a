"""Writes the captures of the measurements here.

captures.py FOLDER: for beside_ovs.sh, UDP packets of 60 bytes from one machine of the logical switch to the other: 100.pcap (100
    flows), new.pcap (400,000), answers.pcap (to those 100)
captures.py FOLDER SERVICES: for scale.sh, services.pcap: 400,000 TCP connections of the first pod to services begin
"""

import random
import struct
import sys


def checksum(header):
    total = sum(struct.unpack(f"!{len(header) // 2}H", header))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def ip(protocol, ends, payload):
    header = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(payload), 0, 0, 64, protocol, 0) + ends
    return header[:10] + struct.pack("!H", checksum(header)) + header[12:] + payload


def packet(source, destination, ports):
    ethernet = bytes([2, 0, 0, 0, 1, destination, 2, 0, 0, 0, 1, source, 8, 0])
    udp = struct.pack("!HHHH", *ports, 26, 0) + bytes(18)
    return ethernet + ip(17, bytes([10, 1, 0, source, 10, 1, 0, destination]), udp)


def first_segment(service, port):
    """A connection of the first pod to port 80 of a service begins, by way of the router."""
    ethernet = bytes([2, 0, 0, 0, 255, 1, 2, 0, 0, 0, 1, 1, 8, 0])
    ends = bytes([10, 244, 1, 1, 10, 96, service >> 8, service & 255])
    segment = struct.pack("!HHIIBBHHH", port, 80, 1, 0, 0x50, 2, 65_535, 0, 0)
    sum_of = checksum(ends + struct.pack("!BBH", 0, 6, len(segment)) + segment)
    segment = segment[:16] + struct.pack("!H", sum_of) + segment[18:]
    return ethernet + ip(6, ends, segment) + bytes(6)


def write(path, packets):
    with open(path, "wb") as capture:
        capture.write(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1))
        for number, data in enumerate(packets):
            capture.write(struct.pack("<IIII", 0, number, len(data), len(data)) + data)


def main():
    folder = sys.argv[1]
    draw = random.Random(7)
    if len(sys.argv) > 2:
        services = int(sys.argv[2])
        drawn = ((draw.randrange(services), draw.randrange(1024, 61_000)) for _ in range(400_000))
        write(f"{folder}/services.pcap", (first_segment(*pair) for pair in drawn))
        return
    write(f"{folder}/100.pcap", (packet(1, 2, (10_000 + n, 5000)) for n in range(100)))
    write(f"{folder}/answers.pcap", (packet(2, 1, (5000, 10_000 + n)) for n in range(100)))
    ports = ((draw.randrange(1024, 61_000), draw.randrange(1024, 61_000)) for _ in range(400_000))
    write(f"{folder}/new.pcap", (packet(1, 2, pair) for pair in ports))


main()
