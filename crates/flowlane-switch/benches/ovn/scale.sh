#!/usr/bin/env bash
# A node like Kubernetes' under OVN, by Open vSwitch in user space and by Flowlane in turn: pods at a logical switch behind a router,
# services (load balancers of three pods each) and network policies (port groups of four pods, which take connections from ten). Prints
# how long it takes until all is in force; what pings lose while the pods' interfaces are set up, each of which sends several frames to all
# others; how long one more pod and one more service take, and what pings lose meanwhile; connections a second that begin at the services;
# and the daemon's time and memory. The daemon has the first core.
#
#   scale.sh [PODS [SERVICES [POLICIES [SWITCH…]]]]     200, 1000 and 200; ovs flowlane
#
# chassis.sh says what it needs; and ping.
source "$(dirname "$0")/chassis.sh"
pods=${1:-200} services=${2:-1000} policies=${3:-200}
switches=("${@:4}")
[ ${#switches[@]} != 0 ] || switches=(ovs flowlane)

now() { date +%s.%N; }
since() { awk -v from="$1" -v to="$(now)" 'BEGIN { printf "%.2f", to - from }'; }
# The median and the largest of numbers, one a line.
summary() { sort -n | awk '{ all[NR] = $1 } END { printf "%s, at most %s", all[int((NR + 1) / 2)], all[NR] }'; }
node() { python3 "$here/node.py" "$@"; }

# Pings from one machine to the other.
begin_pings() {
    ip netns exec bench-1 ping -q -i 0.005 10.244.1.2 >"$at/pings" &
    pinging=$!
}
end_pings() { # WHEN
    kill -INT "$pinging"
    wait "$pinging" || true
    echo "  pings $1: $(grep -o '[0-9]* packets transmitted, [0-9]* received' "$at/pings")," \
        "$(sed -n 's/.* = \([0-9./]* ms\).*/\1/p' "$at/pings") (least, mean, most, deviation)"
}

up() { # ovs|flowlane
    local number from cpu
    start "$1"
    for number in 1 2; do
        machine $number 02:00:00:00:01:0$number
        ip -n bench-$number address add 10.244.1.$number/16 dev e0
    done
    from=$(now)
    node network "$pods" "$services" "$policies"
    nbctl --wait=sb sync
    echo "  northd has the network after $(since "$from") s"
    from=$(now) cpu=$(ticks)
    node interfaces "$pods"
    echo "  $pods interfaces: ovs-vsctl takes $(since "$from") s"
    nbctl --wait=hv sync
    begin_pings
    seq 3 "$pods" | sed 's/.*/link set if& up/' | ip -n bench-c -batch -
    echo "  in force $(since "$from") s after the first interface: $(ovs-ofctl dump-flows br-int | wc -l) flows," \
        "daemon $((($(ticks) - cpu) * 10)) ms, $(memory) MiB"
    sleep 6
    end_pings "while interfaces are set up"
}

changes() {
    local number from
    begin_pings
    for number in $(seq 10); do
        from=$(now)
        node pod $((pods + number))
        vsctl wait-until Interface if$((pods + number)) external_ids:ovn-installed=true
        since "$from"
        echo
    done | summary >"$at/pods"
    for number in $(seq 10); do
        from=$(now)
        node service "$pods" $((services + number))
        nbctl --wait=hv sync
        since "$from"
        echo
    done | summary >"$at/services"
    echo "  one more pod: $(cat "$at/pods") s; one more service: $(cat "$at/services") s"
    end_pings meanwhile
}

# Packets that have arrived at pods.
arrived() {
    ip netns exec bench-c sh -c 'cat /sys/class/net/if*/statistics/rx_packets /sys/class/net/v2/statistics/tx_packets' |
        awk '{ sum += $1 } END { print sum }'
}
connections() {
    local packets load
    python3 "$here/captures.py" "$at" "$services"
    send 1 services 8
    sleep 2
    packets=$(arrived) load=$(ticks)
    sleep 5
    if ! kill -0 "$daemon" 2>/dev/null; then
        echo "  connections that begin at services: the daemon has ended: $(tail -1 "$at/daemon.log")"
        return
    fi
    packets=$((($(arrived) - packets) / 5)) load=$((($(ticks) - load) / 5))
    echo "  connections that begin at services: $packets packets a second arrive, load $load %, $(memory) MiB"
}

for switch in "${switches[@]}"; do
    echo "$switch"
    up $switch
    changes
    connections
    down
done
