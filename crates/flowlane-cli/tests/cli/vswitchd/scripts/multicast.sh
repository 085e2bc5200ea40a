# Multicast snooping. Frames are messages of IGMP and MLD, and packets for groups. They come by wire from another bridge: Open vSwitch learns no
# listeners from those of a controller.
ovs-vsctl add-br br0 -- set Bridge br0 datapath_type=netdev
ovs-vsctl add-br br1 -- set Bridge br1 datapath_type=netdev
~ for n in 1 2 3 4 5; do ip link add d$n type veth peer name w$n && ip link set d$n up && ip link set w$n up; done
ovs-vsctl add-port br0 d1 -- add-port br0 d2 -- add-port br0 d3 -- add-port br0 d4 -- add-port br0 d5 tag=10 -- set Interface d1 ofport_request=1 -- set Interface d2 ofport_request=2 -- set Interface d3 ofport_request=3 -- set Interface d4 ofport_request=4 -- set Interface d5 ofport_request=5
ovs-vsctl add-port br1 w1 -- add-port br1 w2 -- add-port br1 w3 -- add-port br1 w4 -- add-port br1 w5 -- set Interface w1 ofport_request=1 -- set Interface w2 ofport_request=2 -- set Interface w3 ofport_request=3 -- set Interface w4 ofport_request=4 -- set Interface w5 ofport_request=5
ovs-ofctl add-flow br1 priority=99,actions=drop
~ mkdir f
~ echo 01005e010101020000000001080046c000200000000001022a150a000001ef010101940400001600f9fcef0101010000000000000000000000000000 > f/report
~ echo 01005e010102020000000001080046c000200000000001022a140a000001ef010102940400001200fdfbef0101020000000000000000000000000000 > f/other
~ echo 01005e000002020000000001080046c000200000000001023a150a000001e0000002940400001700f8fcef0101010000000000000000000000000000 > f/leave
~ echo 01005e000001020000000003080046c000200000000001023a160a000001e0000001940400001100eeff000000000000000000000000000000000000 > f/query
~ echo 01005e010101020000000004080046c000230000000001fd290f0a000009ef0101019404000068656c6c6f20776f726c640000000000000000000000 > f/data
~ echo 01005e090909020000000004080046c000230000000001fd20ff0a000009ef0909099404000068656c6c6f20776f726c640000000000000000000000 > f/unknown
~ echo 01005e000009020000000004080046c000230000000001fd39080a000009e00000099404000068656c6c6f20776f726c640000000000000000000000 > f/link
~ echo 33330000001602000000000186dd6000000000200001fe800000000000000000000000000001ff0200000000000000000000000000163a000502000001008300800200000000ff0e0000000000000000000000000001 > f/mld
~ echo 33330000001602000000000186dd6000000000200001fe800000000000000000000000000001ff0200000000000000000000000000163a0005020000010084007f0200000000ff0e0000000000000000000000000001 > f/done
~ printf '%s\n' 'ovs-ofctl dump-ports br0 | sed "1d; s/=?/=0/g" | paste - - | tr -s " " | grep -v LOCAL | sed "s/.*port *\([^:]*\):.*tx pkts=\([0-9]*\),.*/\1 \2/" | sort' > sent
~ printf '%s\n' 'ovs-ofctl packet-out br1 "in_port=LOCAL,packet=$(cat f/$2),actions=output:w${1#d}"; sleep 0.2' > frame
~ printf '%s\n' 'ovs-appctl mdb/show br0 | sed "s/ *[0-9]*$//"' > groups
ovs-appctl mdb/show br0
ovs-appctl mdb/flush br0
ovs-appctl mdb/flush
ovs-appctl mdb/flush nothing
ovs-appctl mdb/show
sh frame d4 data
sh sent
ovs-vsctl set Bridge br0 mcast_snooping_enable=true
ovs-appctl mdb/show br0
# A group that nobody has reported, one with a listener, and packets of the link.
sh frame d4 unknown
sh sent
sh frame d1 report
sh frame d2 other
sh groups
sh sent
sh frame d4 data
sh sent
sh frame d4 link
sh sent
ovs-appctl ofproto/trace br0 in_port=4,udp,dl_dst=01:00:5e:01:01:01,nw_dst=239.1.1.1 | grep -c 'Datapath actions: [0-9]*$'
# A router, which gets reports and packets.
sh frame d3 query
sh groups
sh sent
sh frame d2 report
sh sent
sh frame d4 data
sh sent
sh frame d1 leave
sh groups
sh frame d4 data
sh sent
sh frame d1 mld
sh frame d5 mld
sh groups
sh frame d1 done
sh groups
# Packets for unknown groups go to the router, and to ports that get all.
ovs-vsctl set Bridge br0 other_config:mcast-snooping-disable-flood-unregistered=true
sh frame d4 unknown
sh sent
ovs-vsctl set Port d1 other_config:mcast-snooping-flood=true -- set Port d2 other_config:mcast-snooping-flood-reports=true
sh frame d4 unknown
sh sent
sh frame d4 report
sh sent
sh frame d1 other
sh groups
sh frame d2 leave
sh groups
ovs-vsctl clear Bridge br0 other_config -- clear Port d1 other_config -- clear Port d2 other_config
sh frame d4 unknown
sh sent
# Listeners go with their port, and by command.
ovs-vsctl del-port br0 d2
sh groups
ovs-appctl mdb/flush br0 && echo
ovs-appctl mdb/flush
ovs-appctl mdb/show br0
sh frame d4 data
sh sent
sh frame d1 report
ovs-vsctl set Bridge br0 mcast_snooping_enable=false
ovs-appctl mdb/show br0
ovs-vsctl set Bridge br0 mcast_snooping_enable=true
ovs-appctl mdb/show br0
ovs-vsctl get Bridge br0 mcast_snooping_enable
