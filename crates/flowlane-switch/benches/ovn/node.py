"""Describes the network of scale.sh to OVN, or parts of it, by ovn-nbctl and ovs-vsctl.

node.py network PODS SERVICES POLICIES   all of it, but the pods' interfaces
node.py interfaces PODS                  the interfaces of the pods, two of which are machines of their own
node.py service PODS NUMBER              one more service
node.py pod NUMBER                       one more pod, with its interface
"""

import os
import subprocess
import sys

# Commands of a transaction.
TOGETHER = 200

NBCTL = [os.environ.get("OVN_ROOT", "") + "/usr/bin/ovn-nbctl", "--timeout=60"]
VSCTL = ["ovs-vsctl", f"--db=unix:{os.environ['OVS_RUNDIR']}/db.sock", "--timeout=120"]


def run(program, commands):
    """Runs commands, each a list of words, some in one transaction."""
    for first in range(0, len(commands), TOGETHER):
        words = [word for command in commands[first : first + TOGETHER] for word in ["--", *command]]
        if subprocess.run([*program, *words], stdout=subprocess.DEVNULL).returncode != 0:
            sys.exit(1)


def address(pod):
    return f"10.244.{(pod - 1) // 250 + 1}.{(pod - 1) % 250 + 1}"


def ethernet(pod):
    return f"02:00:00:00:{(pod - 1) // 250 + 1:02x}:{(pod - 1) % 250 + 1:02x}"


def pod(number):
    return [
        ["lsp-add", "node", f"pod{number}"],
        ["lsp-set-addresses", f"pod{number}", f"{ethernet(number)} {address(number)}"],
    ]


def policy(number, pods):
    members = sorted({(number * 4 + at) % pods + 1 for at in range(4)})
    sources = sorted({1, *((number * 11 + at) % pods + 1 for at in range(9))})
    of, to = f"policy{number}", "to-lport"
    matches = f"outport == @{of} && ip4.src == $sources{number} && tcp.dst == 8080"
    return [
        ["pg-add", of, *(f"pod{member}" for member in members)],
        ["create", "address_set", f"name=sources{number}", "addresses=" + ",".join(map(address, sources))],
        ["acl-add", of, to, "1001", matches, "allow-related"],
        ["acl-add", of, to, "1000", f"outport == @{of} && tcp", "drop"],
    ]


def service(number, pods):
    chosen = [address((number * by + by) % pods + 1) + ":8080" for by in (1, 7, 13)]
    vip = f"10.96.{number // 256}.{number % 256}:80"
    columns = [f"name=service{number}", "protocol=tcp", f'vips:"{vip}"="{",".join(chosen)}"']
    return [
        [f"--id=@service{number}", "create", "load_balancer", *columns],
        ["add", "load_balancer_group", "all", "load_balancer", f"@service{number}"],
    ]


def interface(number):
    name, kind = (f"v{number}", "system") if number <= 2 else (f"if{number}", "internal")
    settings = [f"type={kind}", f"external_ids:iface-id=pod{number}"]
    return [["add-port", "br-int", name], ["set", "Interface", name, *settings]]


def network(pods, services, policies):
    group = subprocess.run(
        [*NBCTL, "create", "load_balancer_group", "name=all"], check=True, capture_output=True, text=True
    ).stdout.strip()
    router = ["02:00:00:00:ff:01", "10.244.0.1/16"]
    run(
        NBCTL,
        [
            ["ls-add", "node"],
            ["lr-add", "cluster"],
            ["lrp-add", "cluster", "to-node", *router],
            ["lsp-add", "node", "to-cluster"],
            ["lsp-set-type", "to-cluster", "router"],
            ["lsp-set-addresses", "to-cluster", "router"],
            ["lsp-set-options", "to-cluster", "router-port=to-node"],
        ],
    )
    run(
        NBCTL,
        [
            ["set", "logical_switch", "node", f"load_balancer_group={group}"],
            ["set", "logical_router", "cluster", f"load_balancer_group={group}"],
        ],
    )
    run(NBCTL, [command for number in range(1, pods + 1) for command in pod(number)])
    run(NBCTL, [command for number in range(policies) for command in policy(number, pods)])
    run(NBCTL, [command for number in range(services) for command in service(number, pods)])


def main():
    what, numbers = sys.argv[1], list(map(int, sys.argv[2:]))
    if what == "network":
        network(*numbers)
    elif what == "interfaces":
        run(VSCTL, [command for number in range(1, numbers[0] + 1) for command in interface(number)])
    elif what == "service":
        run(NBCTL, service(numbers[1], numbers[0]))
    elif what == "pod":
        run(NBCTL, pod(numbers[0]))
        run(VSCTL, interface(numbers[0]))
    else:
        sys.exit(__doc__)


main()
