#!/usr/bin/env bash
# os-ken's switch tester against Flowlane and Open vSwitch, side by side: each case adds a flow, reads it back, sends packets
# from a switch of its own and looks at what comes out.
#
#   os-ken.sh flowlane|ovs 10|13|14 [SECONDS [FOLDER]]   run the cases, or those of a folder as action/ or group/; at most so long
#   os-ken.sh compare A B                                the cases that two results have otherwise
#
# Results are left in target/os-ken/. Needs root (a network namespace of its own), iproute2, Open vSwitch, Python with venv, and
# PyPI for os-ken 3.1.0. FLOWLANE names another program than target/release/flowlane. A case takes 1 to 10 seconds, and
# there are 192, 991 and 1,003: run nothing beside them, since they wait for a second only.
set -euo pipefail
root=$(cd "$(dirname "$0")/../../../.." && pwd)
results=$root/target/os-ken
if [ "${1-}" = compare ]; then
    exec python3 "$(dirname "$0")/os_ken_compare.py" "$2" "$3"
fi
kind=${1:?flowlane or ovs} version=${2:?10, 13 or 14} seconds=${3:-7200} folder=${4-}
mkdir -p "$results"
tools=$results/venv
if [ ! -x "$tools/bin/osken-manager" ]; then
    python3 -m venv "$tools"
    "$tools/bin/pip" install --quiet 'os-ken==3.1.0'
fi
package=$("$tools/bin/python" -c 'import os_ken, os; print(os.path.dirname(os_ken.__file__))' 2>/dev/null)
work=$(mktemp -d)
space=os-ken-$$
finish() {
    ip netns pids "$space" | xargs -r kill 2>/dev/null || true
    sleep 0.5
    ip netns pids "$space" | xargs -r kill -9 2>/dev/null || true
    ip netns del "$space"
    rm -rf "$work"
}
ip netns add "$space"
trap finish EXIT
inside() { ip netns exec "$space" "$@"; }
inside ip link set lo up
# The switch's ports are a1 to a3, the tester's b1 to b3.
for port in 1 2 3; do
    inside ip link add "a$port" type veth peer name "b$port"
    for link in "a$port" "b$port"; do
        inside sysctl -qw "net.ipv6.conf.$link.disable_ipv6=1"
        inside ip link set "$link" up
    done
done
export OVS_RUNDIR=$work OVS_LOGDIR=$work OVS_DBDIR=$work OVS_SYSCONFDIR=$work
ovsdb-tool create "$work/conf.db" /usr/share/openvswitch/vswitch.ovsschema
inside ovsdb-server "$work/conf.db" --remote="punix:$work/db.sock" --unixctl="$work/db.ctl" >"$work/db.out" 2>&1 &
vsctl() { ovs-vsctl --retry --timeout=20 --db="unix:$work/db.sock" "$@"; }
vsctl --no-wait init
inside ovs-vswitchd "unix:$work/db.sock" --unixctl="$work/vs.ctl" >"$work/vs.out" 2>&1 &
bridge() { # NAME DATAPATH PREFIX VERSION
    vsctl add-br "$1" -- set bridge "$1" datapath_type=netdev "protocols=OpenFlow$4" fail-mode=secure \
        "other-config:datapath-id=000000000000000$2" other-config:disable-in-band=true
    for port in 1 2 3; do
        vsctl add-port "$1" "$3$port" -- set interface "$3$port" "ofport_request=$port"
    done
    vsctl set-controller "$1" tcp:127.0.0.1:6653
}
bridge tester 2 b 13
if [ "$kind" = ovs ]; then
    bridge target 1 a "$version"
else
    {
        printf '[openflow]\nbridge = "target"\ndatapath_id = "1"\ncontrollers = ["tcp:127.0.0.1:6653"]\n'
        printf 'protocols = ["OpenFlow%s"]\n' "$version"
        for port in 1 2 3; do
            printf '[[port]]\nnumber = %s\nname = "a%s"\nopen = "afpacket:a%s"\n' $port $port $port
        done
    } >"$work/switch.toml"
    flowlane=${FLOWLANE:-$root/target/release/flowlane}
    XDG_RUNTIME_DIR=$work inside "$flowlane" switch run "$work/switch.toml" --socket "$work/control" >"$work/switch.out" 2>&1 &
fi
out=$results/$kind-$version.txt
cd "$package/.."
timeout "$seconds" ip netns exec "$space" "$tools/bin/osken-manager" --ofp-tcp-listen-port 6653 \
    --test-switch-dir "$package/tests/switch/of$version/$folder" \
    --test-switch-target-version "openflow$version" --test-switch-tester-version openflow13 \
    os_ken/tests/switch/tester.py >"$out" 2>&1 || true
echo "$(grep -c ' OK$' "$out" || true) OK, $(grep -c ' ERROR$' "$out" || true) ERROR: $out"
