#!/usr/bin/env bash
# Faucet 1.10 drives Flowlane: two VLANs with a router, whose hosts reach each other, also after a restart of the switch, without
# Faucet, and after a restart of Faucet.
#
#   faucet.sh
#
# Needs root (network namespaces), iproute2, ping, Python with venv, and PyPI for Faucet 1.10.11. FLOWLANE names another program than
# target/release/flowlane. Takes about a minute; prints what holds, and fails where something does not.
set -euo pipefail
root=$(cd "$(dirname "$0")/../../../.." && pwd)
flowlane=${FLOWLANE:-$root/target/release/flowlane}
tools=$root/target/faucet/venv
if [ ! -x "$tools/bin/faucet" ]; then
    python3 -m venv "$tools"
    # Its packages are built with pkg_resources, which later versions lack.
    "$tools/bin/pip" install --quiet 'setuptools<81' wheel pbr
    "$tools/bin/pip" install --quiet --no-build-isolation 'faucet==1.10.11'
fi
export PATH=$tools/bin:$PATH
work=$(mktemp -d)
space=faucet-$$
switch='' controller=''
finish() {
    ip netns pids "$space" | xargs -r kill -9 2>/dev/null || true
    wait 2>/dev/null || true
    local name
    for name in "$space" "$space-1" "$space-2" "$space-3"; do ip netns del "$name" 2>/dev/null || true; done
    rm -rf "$work"
}
trap finish EXIT
cat >"$work/faucet.yaml" <<'YAML'
vlans:
  office: {vid: 100, faucet_vips: ["10.0.100.254/24"], faucet_mac: "0e:00:00:00:01:00"}
  guest: {vid: 200, faucet_vips: ["10.0.200.254/24"], faucet_mac: "0e:00:00:00:02:00"}
routers:
  between: {vlans: [office, guest]}
dps:
  switch:
    dp_id: 0x1
    hardware: "Open vSwitch"
    interfaces:
      1: {native_vlan: office}
      2: {native_vlan: office}
      3: {native_vlan: guest}
YAML
ip netns add "$space"
ip -n "$space" link set lo up
printf '[openflow]\nbridge = "switch"\ndatapath_id = "1"\ncontrollers = ["tcp:127.0.0.1:6653"]\nprotocols = ["OpenFlow13"]\n' >"$work/switch.toml"
for host in 1 2 3; do
    network=$((host < 3 ? 100 : 200))
    ip netns add "$space-$host"
    ip link add "p$host" netns "$space" type veth peer name e0 netns "$space-$host"
    ip -n "$space" link set "p$host" up
    ip -n "$space-$host" link set e0 up
    ip -n "$space-$host" addr add "10.0.$network.$host/24" dev e0
    ip -n "$space-$host" route add default via "10.0.$network.254"
    printf '[[port]]\nnumber = %s\nopen = "afpacket:p%s"\n' "$host" "$host" >>"$work/switch.toml"
done
start_switch() {
    XDG_RUNTIME_DIR=$work ip netns exec "$space" "$flowlane" switch run "$work/switch.toml" --socket "$work/control" >"$work/switch.out" 2>&1 &
    switch=$!
}
start_faucet() {
    FAUCET_CONFIG=$work/faucet.yaml FAUCET_LOG=$work/faucet.log FAUCET_EXCEPTION_LOG=$work/exceptions.log \
        ip netns exec "$space" faucet --ryu-ofp-tcp-listen-port 6653 >"$work/faucet.out" 2>&1 &
    controller=$!
}
reaches() { ip netns exec "$space-$1" ping -q -c 1 -W 1 "$2" >/dev/null; }
await() { # TITLE HOST ADDRESS
    local try
    for try in $(seq 30); do
        if reaches "$2" "$3"; then
            echo "$1: at try $try"
            return
        fi
        sleep 0.3
    done
    echo "$1: not in 30 tries" >&2
    tail -5 "$work/faucet.log" "$work/faucet.out" "$work/switch.out" >&2
    exit 1
}
start_switch
start_faucet
await "within a VLAN" 1 10.0.100.2
await "between VLANs" 1 10.0.200.3
kill "$switch"
wait "$switch" || true
start_switch
await "after a restart of the switch, within a VLAN" 2 10.0.100.1
await "after a restart of the switch, between VLANs" 3 10.0.100.2
kill "$controller"
wait "$controller" || true
await "without Faucet" 1 10.0.200.3
start_faucet
sleep 5
await "after a restart of Faucet" 3 10.0.100.1
if [ -s "$work/exceptions.log" ]; then
    cat "$work/exceptions.log" >&2
    exit 1
fi
