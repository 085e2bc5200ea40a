"""Writes the captures of beside_ovs.sh: UDP packets of 60 bytes from one machine of the logical switch to the other.

captures.py FOLDER: 100.pcap (100 flows), new.pcap (400,000), answers.pcap (to those 100)
"""

import random
import struct
import sys


def checksum(header):
    total = sum(struct.unpack(f"!{len(header) // 2}H", header))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def packet(source, destination, ports):
    ethernet = bytes([2, 0, 0, 0, 1, destination, 2, 0, 0, 0, 1, source, 8, 0])
    udp = struct.pack("!HHHH", *ports, 26, 0)
    ends = bytes([10, 1, 0, source, 10, 1, 0, destination])
    header = struct.pack("!BBHHHBBH", 0x45, 0, 46, 0, 0, 64, 17, 0) + ends
    header = header[:10] + struct.pack("!H", checksum(header)) + header[12:]
    return ethernet + header + udp + bytes(18)


def write(path, packets):
    with open(path, "wb") as capture:
        capture.write(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1))
        for number, data in enumerate(packets):
            capture.write(struct.pack("<IIII", 0, number, len(data), len(data)) + data)


def main():
    folder = sys.argv[1]
    draw = random.Random(7)
    write(f"{folder}/100.pcap", (packet(1, 2, (10_000 + n, 5000)) for n in range(100)))
    write(f"{folder}/answers.pcap", (packet(2, 1, (5000, 10_000 + n)) for n in range(100)))
    ports = ((draw.randrange(1024, 61_000), draw.randrange(1024, 61_000)) for _ in range(400_000))
    write(f"{folder}/new.pcap", (packet(1, 2, pair) for pair in ports))


main()
