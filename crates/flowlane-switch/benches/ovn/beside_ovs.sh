#!/usr/bin/env bash
# An OVN network on one chassis, by Open vSwitch in user space and by Flowlane in turn: a logical switch whose access lists keep
# connections, packets of 60 bytes from one machine to the other as fast as they are taken. Prints packets a second that arrive, the
# load of the daemon, and its memory. The daemon has the first core, the machine that sends the second.
#
#   beside_ovs.sh [ROUNDS [afxdp]]     3 rounds, of both; afxdp: Flowlane's interfaces past the network stack
#
# Needs root, two cores that nothing else uses, ethtool, Python, Debian's openvswitch-switch, and OVN's packages, unpacked in OVN_ROOT or
# installed. FLOWLANE names another program than target/release/flowlane.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
flowlane=${FLOWLANE:-$here/../../../../target/release/flowlane}
rounds=${1:-3} kind=${2-}
ovn=${OVN_ROOT-}
at=$(mktemp -d)
export OVN_NB_DB=unix:$at/nb.sock OVN_SB_DB=unix:$at/sb.sock OVN_RUNDIR=$at OVS_RUNDIR=$at
[ -z "$ovn" ] || export LD_LIBRARY_PATH=$ovn/usr/lib/$(uname -m)-linux-gnu
daemon=
nbctl() { "$ovn/usr/bin/ovn-nbctl" --timeout=30 "$@"; }
vsctl() { ovs-vsctl --db="unix:$at/db.sock" --timeout=20 "$@"; }
background() { # NAME COMMAND…
    local name=$1
    shift
    setsid "$@" >"$at/$name.log" 2>&1 </dev/null &
    echo $! >>"$at/processes"
    # The shell does not report that it was killed.
    disown
}
database() { # NAME SCHEMA
    ovsdb-tool create "$at/$1.file" "$2"
    background "$1" ovsdb-server "$at/$1.file" --remote="punix:$at/$1.sock" --unixctl=none
}
down() {
    local name process
    if [ -f "$at/processes" ]; then
        while read -r process; do kill -9 "$process" 2>/dev/null || true; done <"$at/processes"
        sleep 0.5
    fi
    for name in bench-c bench-1 bench-2; do ip netns del $name 2>/dev/null || true; done
    rm -rf "${at:?}"/*
}
trap 'down; rm -rf "$at"' EXIT

up() { # ovs|flowlane
    local machine
    for machine in bench-c bench-1 bench-2; do ip netns add $machine; done
    database nb "$ovn/usr/share/ovn/ovn-nb.ovsschema"
    database sb "$ovn/usr/share/ovn/ovn-sb.ovsschema"
    database db /usr/share/openvswitch/vswitch.ovsschema
    sleep 1
    nbctl init
    background northd "$ovn/usr/bin/ovn-northd" "--ovnnb-db=$OVN_NB_DB" "--ovnsb-db=$OVN_SB_DB"
    vsctl --no-wait init -- set Open_vSwitch . external_ids:system-id=c "external_ids:ovn-remote=$OVN_SB_DB" \
        external_ids:ovn-encap-type=geneve external_ids:ovn-encap-ip=127.0.0.1 external_ids:ovn-bridge-datapath-type=netdev
    case $1 in
    ovs) background daemon taskset -c 0 ip netns exec bench-c ovs-vswitchd "unix:$at/db.sock" --unixctl="$at/daemon.ctl" ;;
    *) background daemon taskset -c 0 ip netns exec bench-c "$flowlane" vswitchd "unix:$at/db.sock" --unixctl "$at/daemon.ctl" ;;
    esac
    daemon=$(tail -1 "$at/processes")
    sleep 2
    background controller ip netns exec bench-c "$ovn/usr/bin/ovn-controller" "unix:$at/db.sock"
    nbctl ls-add sw
    for machine in 1 2; do
        ip link add v$machine netns bench-c type veth peer name e0 netns bench-$machine
        ip -n bench-c link set v$machine up
        ip -n bench-$machine link set e0 address 02:00:00:00:01:0$machine up
        # No machine answers what it has no address for.
        ip netns exec bench-$machine ethtool -K e0 tx off >/dev/null
        nbctl lsp-add sw p$machine -- lsp-set-addresses p$machine "02:00:00:00:01:0$machine 10.1.0.$machine"
        vsctl add-port br-int v$machine -- set Interface v$machine external_ids:iface-id=p$machine
        if [ "$1$kind" = flowlaneafxdp ]; then vsctl set Interface v$machine type=afxdp; fi
    done
    nbctl acl-add sw from-lport 1001 'inport=="p1" && ip4' allow-related
    nbctl acl-add sw to-lport 1001 'outport=="p2" && udp' allow-related
    nbctl acl-add sw to-lport 900 'outport=="p2" && ip4' drop
    nbctl --wait=hv sync
}

send() { # MACHINE CAPTURE SECONDS [OPTION]: replays a capture at the machine's interface
    printf '[[port]]\nnumber = 1\nopen = "pcap:%s/%s.pcap,loop=0%s"\n[[port]]\nnumber = 2\nopen = "afpacket:e0"\n' \
        "$at" "$2" "${4-}" >"$at/$2.toml"
    printf '[[table]]\nnumber = 0\nrules = ["in_port=1 actions=output:2"]\n' >>"$at/$2.toml"
    background "$2" taskset -c 1 ip netns exec "bench-$1" "$flowlane" switch run "$at/$2.toml" --duration "$3" --socket "$at/$2.sock"
}
arrived() { ip netns exec bench-2 cat /sys/class/net/e0/statistics/rx_packets; }
ticks() { awk '{print $14 + $15}' "/proc/$daemon/stat"; }
measure() { # TITLE CAPTURE
    local packets load
    send 1 "$2" 6
    sleep 1.5
    packets=$(arrived) load=$(ticks)
    sleep 4
    packets=$((($(arrived) - packets) / 4)) load=$((($(ticks) - load) / 4))
    echo "  $1: $packets packets a second, load $load %, $(awk '/VmRSS/{print int($2 / 1024)}' "/proc/$daemon/status") MiB"
    sleep 1
}

for round in $(seq "$rounds"); do
    for switch in ovs flowlane; do
        up $switch
        python3 "$here/captures.py" "$at"
        echo "round $round, $switch"
        measure "100 flows without answers" 100
        measure "400,000 flows" new
        send 2 answers 12 ,rate=1000
        sleep 2
        measure "100 established flows" 100
        down
    done
done
