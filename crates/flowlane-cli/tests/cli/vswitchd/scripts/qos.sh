# QoS of the kernel's queues. Open vSwitch's order of settings and ports is any.
~ ip link add e1 type veth peer name p1; ip link add e2 type veth peer name p2; for i in e1 p1 e2 p2; do ip link set $i up; done
~ printf '%s\n' 'tc qdisc show dev $1 | grep -o "^qdisc [a-z_]* [0-9]*: root"; tc class show dev $1 | sort' > shown
~ printf '%s\n' 'ovs-ofctl queue-stats br0 $* | sort; ovs-ofctl -O OpenFlow13 queue-stats br0 $* | sed "s/duration=.*//" | sort' > stats
ovs-vsctl add-br br0 -- set Bridge br0 datapath_type=netdev -- add-port br0 e1 -- add-port br0 e2
ovs-appctl qos/show e1
ovs-appctl qos/show-types e1 | grep -v policer | sort
ovs-appctl qos/show-types br0 | grep -v policer | sort
ovs-ofctl queue-get-config br0 1
sh stats
ovs-vsctl -- --id=@q create QoS type=linux-htb other_config:max-rate=10000000 queues:1=@a queues:5=@b -- --id=@a create Queue other_config:min-rate=1000000 other_config:max-rate=2000000 -- --id=@b create Queue other_config:max-rate=5000000 other_config:burst=80000 other_config:priority=3 -- set Port e1 qos=@q | wc -l
sh shown e1
ovs-appctl qos/show e1
sh stats
sh stats 1
sh stats e1 5
sh stats e1 9
sh stats e2
sh stats e2 0
sh stats 77
ovs-ofctl queue-get-config br0
ovs-ofctl queue-get-config br0 e1
ovs-ofctl queue-get-config br0 77
ovs-ofctl -O OpenFlow13 queue-get-config br0 e1
ovs-ofctl -O OpenFlow13 queue-get-config br0 77
ovs-ofctl -O OpenFlow14 queue-get-config br0 e1
ovs-ofctl -O OpenFlow14 queue-get-config br0 e1 5
ovs-ofctl -O OpenFlow14 queue-get-config br0 e1 6
ovs-ofctl -O OpenFlow15 queue-get-config br0 e1
# Changes of rates, and of queues.
~ for q in $(ovs-vsctl --bare --columns=_uuid list QoS); do ovs-vsctl set QoS $q other_config:max-rate=20000000; done
sh shown e1
~ for q in $(ovs-vsctl --bare --columns=_uuid list QoS); do ovs-vsctl remove QoS $q queues 5; done
sh shown e1
ovs-appctl qos/show e1
sh stats
# Packets by queues: those that choose none go through the default one.
~ for i in 1 2 3; do ovs-ofctl packet-out br0 "in_port=2,packet=ffffffffffff02000000000188b6$(printf 00%.0s $(seq 46)),actions=output:1"; done
~ sleep 0.3
ovs-ofctl queue-stats br0 1 0 | grep -o 'pkts=3'
# Settings that are no numbers, or too small or large.
ovs-vsctl -- --id=@q create QoS type=linux-htb other_config:max-rate=abc queues:0=@a queues:2=@b queues:3=@c queues:70000=@a -- --id=@a create Queue other_config:max-rate=3000000 -- --id=@b create Queue other_config:min-rate=9000000000000 -- --id=@c create Queue other_config:min-rate=9000000 -- set Port e2 qos=@q | wc -l
sh shown e2
ovs-appctl qos/show e2
ovs-vsctl -- --id=@q create QoS type=linux-htb other_config:max-rate=100 -- set Port e2 qos=@q | wc -l
ovs-appctl qos/show e2
# Without a rate: that of the link, or the default where it has none.
ovs-vsctl -- --id=@q create QoS type=linux-htb -- set Port e2 qos=@q | wc -l
ovs-appctl qos/show e2
~ ip link add n1 type bridge; ip link add n2 type vxlan id 5 dstport 9999; for i in n1 n2; do ip link set $i up; done
ovs-vsctl -- --id=@q create QoS type=linux-htb -- add-port br0 n1 -- set Interface n1 ofport_request=11 -- set Port n1 qos=@q | wc -l
ovs-appctl qos/show n1
ovs-vsctl -- --id=@q create QoS type=linux-htb -- add-port br0 n2 -- set Interface n2 ofport_request=12 -- set Port n2 qos=@q | wc -l
ovs-appctl qos/show n2
~ ovs-vsctl del-port n1 -- del-port n2; tc qdisc del dev n2 root; ip link del n1; ip link del n2
# Of a bridge's own interface, and of a TAP.
ovs-vsctl -- --id=@q create QoS type=linux-htb other_config:max-rate=10000000 -- set Port br0 qos=@q | wc -l
sh shown br0
ovs-appctl qos/show br0
ovs-vsctl -- --id=@q create QoS type=linux-htb other_config:max-rate=10000000 -- add-port br0 t1 -- set Interface t1 type=tap ofport_request=7 -- set Port t1 qos=@q | wc -l
sh shown t1
ovs-ofctl queue-stats br0 7 0
# Where there are no queues of the kernel.
ovs-vsctl -- --id=@q create QoS type=linux-htb -- add-port br0 x1 -- set Interface x1 type=patch options:peer=x2 ofport_request=8 -- set Port x1 qos=@q | wc -l
ovs-appctl qos/show x1
ovs-ofctl queue-stats br0 8
# Administrators keep theirs with linux-noop.
~ tc qdisc del dev e2 root; ovs-vsctl clear Port e2 qos
ovs-vsctl -- --id=@q create QoS type=linux-noop -- set Port e2 qos=@q | wc -l
~ tc qdisc add dev e2 root handle 7: htb
sh shown e2
ovs-appctl qos/show e2
ovs-vsctl set Interface e2 other_config:x=y
sh shown e2
ovs-vsctl clear Port e1 qos
sh shown e1
ovs-appctl qos/show e1
sh stats 1
ovs-appctl qos/show nothing
ovs-vsctl del-br br0
