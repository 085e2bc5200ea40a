#!/usr/bin/env bash
# An OVN network on one chassis, by Open vSwitch in user space and by Flowlane in turn: a logical switch whose access lists keep
# connections, packets of 60 bytes from one machine to the other as fast as they are taken. Prints packets a second that arrive, the
# load of the daemon, and its memory. The daemon has the first core, the machine that sends the second.
#
#   beside_ovs.sh [ROUNDS [afxdp]]     3 rounds, of both; afxdp: Flowlane's interfaces past the network stack
#
# chassis.sh says what it needs.
source "$(dirname "$0")/chassis.sh"
rounds=${1:-3} kind=${2-}

up() { # ovs|flowlane
    local machine
    start "$1"
    nbctl ls-add sw
    for machine in 1 2; do
        machine $machine 02:00:00:00:01:0$machine
        nbctl lsp-add sw p$machine -- lsp-set-addresses p$machine "02:00:00:00:01:0$machine 10.1.0.$machine"
        vsctl add-port br-int v$machine -- set Interface v$machine external_ids:iface-id=p$machine
        if [ "$1$kind" = flowlaneafxdp ]; then vsctl set Interface v$machine type=afxdp; fi
    done
    nbctl acl-add sw from-lport 1001 'inport=="p1" && ip4' allow-related
    nbctl acl-add sw to-lport 1001 'outport=="p2" && udp' allow-related
    nbctl acl-add sw to-lport 900 'outport=="p2" && ip4' drop
    nbctl --wait=hv sync
}

arrived() { ip netns exec bench-2 cat /sys/class/net/e0/statistics/rx_packets; }
measure() { # TITLE CAPTURE
    local packets load
    send 1 "$2" 6
    sleep 1.5
    packets=$(arrived) load=$(ticks)
    sleep 4
    packets=$((($(arrived) - packets) / 4)) load=$((($(ticks) - load) / 4))
    echo "  $1: $packets packets a second, load $load %, $(memory) MiB"
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
