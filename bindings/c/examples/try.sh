#!/usr/bin/env bash
# Tests the captures example ($1) with a generated capture.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
printf 'udp,tp_dst=53,actions=drop\nip,actions=drop\n' >"$folder/r.flows"
# Two UDP frames, to ports 53 and 54, and one of another type.
frame() { printf '00f15365%08x%s%s%s' 0 2e000000 2e000000 "$1"; }
udp=0200000000020200000000010800"4500002000010000401100000a0000010a00000203e800"
{
    printf 'd4c3b2a1020004000000000000000000ffff000001000000'
    frame "${udp}35000c0000deadbeef"
    frame "${udp}36000c0000deadbeef"
    frame "02000000000202000000000188b5$(printf '00%.0s' {1..32})"
} | xxd -r -p >"$folder/t.pcap"
[ "$("$1" "$folder/r.flows" "$folder/t.pcap" 2>/dev/null)" = $'0,0\n1,1\n2,' ]
echo "the captures example passed"
