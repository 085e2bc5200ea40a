#!/usr/bin/env bash
# OVN on two chassis of this machine, each in a network namespace with `flowlane vswitchd` in the place of `ovs-vswitchd`: two logical
# switches, a router, and four hosts. docs/ovn.md walks through it.
#
#   examples/ovn.sh up       starts it, which takes a few seconds
#   examples/ovn.sh ping     lets every host ping every other one
#   examples/ovn.sh down     ends it and removes everything
#
# Needs root, and Debian's ovn-central, ovn-host and openvswitch-switch (installed; their own services are not used).
# FLOWLANE names another program than target/release/flowlane, OVN_ROOT and OVS_ROOT folders that the packages are unpacked into,
# OVN_AT the folder for databases, sockets and logs.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
flowlane=${FLOWLANE:-$root/target/release/flowlane}
ovn=${OVN_ROOT-}
at=${OVN_AT:-/tmp/flowlane-ovn}
hosts=(h1 h2 h3 h4)
export OVN_NB_DB=unix:$at/nb.sock OVN_SB_DB=unix:$at/sb.sock OVN_RUNDIR=$at
ovs=${OVS_ROOT-}
libraries=usr/lib/$(uname -m)-linux-gnu
if [ -n "$ovn$ovs" ]; then
    export LD_LIBRARY_PATH=$ovn/$libraries:$ovs/$libraries PATH=$ovs/usr/sbin:$ovs/usr/bin:$PATH
fi

nbctl() { "$ovn/usr/bin/ovn-nbctl" --timeout=20 "$@"; }
vsctl() { # CHASSIS ARGUMENTS…
    local chassis=$1
    shift
    ovs-vsctl --timeout=20 --db="unix:$at/$chassis/db.sock" "$@"
}
background() { # LOG COMMAND…
    local log=$1
    shift
    setsid "$@" >"$log" 2>&1 </dev/null &
    echo $! >>"$at/processes"
}
await() { # SOCKET
    for _ in $(seq 100); do
        [ -S "$1" ] && return
        sleep 0.1
    done
    echo "$1 is not there after ten seconds" >&2
    exit 1
}
database() { # NAME SCHEMA FOLDER
    ovsdb-tool create "$3/$1.db" "$2"
    background "$3/$1.log" ovsdb-server "$3/$1.db" --remote="punix:$3/$1.sock" --unixctl=none
    await "$3/$1.sock"
}

chassis() { # NUMBER: a namespace with a database, the daemon and OVN's controller
    local name=c$1 folder=$at/c$1
    mkdir "$folder"
    ip netns add "$name"
    ip -n "$name" link set lo up
    database db "$ovs/usr/share/openvswitch/vswitch.ovsschema" "$folder"
    vsctl "$name" --no-wait init -- set Open_vSwitch . "external_ids:system-id=$name" "external_ids:ovn-remote=$OVN_SB_DB" \
        external_ids:ovn-encap-type=geneve "external_ids:ovn-encap-ip=192.0.2.$1"
    OVS_RUNDIR=$folder background "$folder/flowlane.log" ip netns exec "$name" "$flowlane" vswitchd --pidfile
    OVS_RUNDIR=$folder OVN_RUNDIR=$folder background "$folder/controller.log" \
        ip netns exec "$name" "$ovn/usr/bin/ovn-controller" "unix:$folder/db.sock"
}

host() { # NAME CHASSIS SWITCH NUMBER: a namespace with an interface that is a logical port
    local mac=02:00:00:00:0$3:0$4 address=10.$3.0.$4
    ip netns add "$1"
    ip -n "$1" link set lo up
    ip link add "v$1" netns "c$2" type veth peer name eth0 netns "$1"
    ip -n "c$2" link set "v$1" up
    # Packets of 1,442 bytes fit into the tunnels of a network with 1,500.
    ip -n "$1" link set eth0 address "$mac" mtu 1442 up
    ip -n "$1" addr add "$address/24" dev eth0
    ip -n "$1" route add default via "10.$3.0.254"
    vsctl "c$2" add-port br-int "v$1" -- set Interface "v$1" "external_ids:iface-id=$1"
    nbctl lsp-add "sw$3" "$1" -- lsp-set-addresses "$1" "$mac $address"
}

up() {
    mkdir "$at"
    database nb "$ovn/usr/share/ovn/ovn-nb.ovsschema" "$at"
    database sb "$ovn/usr/share/ovn/ovn-sb.ovsschema" "$at"
    nbctl init
    background "$at/northd.log" "$ovn/usr/bin/ovn-northd" "--ovnnb-db=$OVN_NB_DB" "--ovnsb-db=$OVN_SB_DB"
    chassis 1
    chassis 2
    # The wire between the chassis.
    ip link add wire netns c1 type veth peer name wire netns c2
    for number in 1 2; do
        ip -n "c$number" addr add "192.0.2.$number/24" dev wire
        ip -n "c$number" link set wire up
        await "$at/c$number/br-int.mgmt"
    done
    nbctl lr-add router
    for number in 1 2; do
        nbctl ls-add "sw$number" -- lrp-add router "r-sw$number" "02:00:00:00:ff:0$number" "10.$number.0.254/24" \
            -- lsp-add "sw$number" "sw$number-r" -- lsp-set-type "sw$number-r" router -- lsp-set-addresses "sw$number-r" router \
            -- lsp-set-options "sw$number-r" "router-port=r-sw$number"
    done
    host h1 1 1 1
    host h2 2 1 2
    host h3 1 2 3
    host h4 2 2 4
    nbctl --wait=hv sync
}

ping_all() {
    local from to failed=0
    for from in "${hosts[@]}"; do
        for to in 10.1.0.1 10.1.0.2 10.2.0.3 10.2.0.4; do
            if ip netns exec "$from" ping -q -c 1 -W 2 "$to" >/dev/null; then
                echo "$from reaches $to"
            else
                echo "$from does not reach $to"
                failed=1
            fi
        done
    done
    return $failed
}

down() {
    local process name
    if [ -f "$at/processes" ]; then
        while read -r process; do kill "$process" 2>/dev/null || true; done <"$at/processes"
        sleep 1
    fi
    for name in c1 c2 "${hosts[@]}"; do ip netns del "$name" 2>/dev/null || true; done
    rm -rf "$at"
}

case ${1-} in
up) up ;;
ping) ping_all ;;
down) down ;;
*)
    sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "$0"
    exit 2
    ;;
esac
