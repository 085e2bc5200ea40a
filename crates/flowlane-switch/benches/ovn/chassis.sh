# Functions of the measurements here: one OVN chassis in the network namespace bench-c, whose switch is Open vSwitch in user space or
# Flowlane, in turn. Sourced.
#
# Needs root, two cores that nothing else uses, ethtool, Python, Debian's openvswitch-switch, and OVN's packages, unpacked in OVN_ROOT or
# installed. FLOWLANE names another program than target/release/flowlane.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
flowlane=${FLOWLANE:-$here/../../../../target/release/flowlane}
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

start() { # ovs|flowlane: the databases, northd, the switch on the first core, and the controller
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
}

machine() { # NUMBER ADDRESS: a machine bench-NUMBER with the interface e0, whose other end v$1 is in bench-c
    ip link add "v$1" netns bench-c type veth peer name e0 netns "bench-$1"
    ip -n bench-c link set "v$1" up
    ip -n "bench-$1" link set e0 address "$2" up
    # No machine answers what it has no address for.
    ip netns exec "bench-$1" ethtool -K e0 tx off >/dev/null
}

send() { # MACHINE CAPTURE SECONDS [OPTION]: replays a capture at the machine's interface
    printf '[[port]]\nnumber = 1\nopen = "pcap:%s/%s.pcap,loop=0%s"\n[[port]]\nnumber = 2\nopen = "afpacket:e0"\n' \
        "$at" "$2" "${4-}" >"$at/$2.toml"
    printf '[[table]]\nnumber = 0\nrules = ["in_port=1 actions=output:2"]\n' >>"$at/$2.toml"
    background "$2" taskset -c 1 ip netns exec "bench-$1" "$flowlane" switch run "$at/$2.toml" --duration "$3" --socket "$at/$2.sock"
}
memory() { awk '/VmRSS/{print int($2 / 1024)}' "/proc/$daemon/status"; }
ticks() { awk '{print $14 + $15}' "/proc/$daemon/stat"; }
