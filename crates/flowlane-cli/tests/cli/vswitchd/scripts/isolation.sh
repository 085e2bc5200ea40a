# Protected ports, which exchange nothing with each other, and VLANs that are flooded. Frames come by wire from another bridge.
ovs-vsctl add-br br0 -- set Bridge br0 datapath_type=netdev
ovs-vsctl add-br br1 -- set Bridge br1 datapath_type=netdev
~ for n in 1 2 3 4; do ip link add d$n type veth peer name w$n && ip link set d$n up && ip link set w$n up; done
ovs-vsctl add-port br0 d1 -- add-port br0 d2 -- add-port br0 d3 -- add-port br0 d4 tag=10 -- set Interface d1 ofport_request=1 -- set Interface d2 ofport_request=2 -- set Interface d3 ofport_request=3 -- set Interface d4 ofport_request=4
ovs-vsctl add-port br1 w1 -- add-port br1 w2 -- add-port br1 w3 -- add-port br1 w4 -- set Interface w1 ofport_request=1 -- set Interface w2 ofport_request=2 -- set Interface w3 ofport_request=3 -- set Interface w4 ofport_request=4
ovs-ofctl add-flow br1 priority=99,actions=drop
~ printf '%s\n' 'ovs-ofctl dump-ports br0 | sed "1d; s/=?/=0/g" | paste - - | tr -s " " | grep -v LOCAL | sed "s/.*port *\([^:]*\):.*tx pkts=\([0-9]*\),.*/\1 \2/" | sort' > sent
# A frame of station 0N, behind port dN, to another station, or to all; with the tag of a VLAN or without.
~ printf '%s\n' 'ovs-ofctl packet-out br1 "in_port=LOCAL,packet=${2}02000000000${1}${3}88b5$(printf %092d 0),actions=output:w$1"; sleep 0.2' > frame
# Open vSwitch learns from a frame of a cached path when it next counts it, which may be after addresses were forgotten.
~ printf '%s\n' 'ovs-appctl revalidator/purge' > settle
~ printf '%s\n' 'ovs-appctl fdb/show br0 | sed "s/ *[0-9]*$//" | sort' > learned
sh frame 1 ffffffffffff
sh sent
~ sh settle
ovs-vsctl set Port d1 protected=true -- set Port d2 protected=true
sh frame 1 ffffffffffff
sh sent
sh frame 2 ffffffffffff
sh sent
sh frame 3 ffffffffffff
sh sent
sh learned
# Between protected ports, to one, and from one.
sh frame 1 020000000002
sh frame 3 020000000002
sh frame 1 020000000003
sh sent
ovs-appctl ofproto/trace br0 in_port=1,dl_src=02:00:00:00:00:01,dl_dst=02:00:00:00:00:02 | grep 'Datapath actions'
# VLAN 10 is another network; protection holds in all VLANs.
~ sh settle
ovs-vsctl set Port d4 protected=true
sh frame 4 ffffffffffff
sh frame 1 ffffffffffff 8100000a
sh frame 3 ffffffffffff 8100000a
sh sent
ovs-vsctl get Port d1 protected -- get Port d3 protected
# Open vSwitch forgets the addresses at a port whose protection changes: they are learned again.
~ sh settle
ovs-vsctl set Port d2 protected=false
sh frame 2 ffffffffffff
sh frame 1 020000000002
sh sent
# VLANs without addresses.
~ sh settle
ovs-vsctl set Bridge br0 flood_vlans=10
sh learned
sh frame 3 020000000004 8100000a
sh frame 4 020000000003
sh learned
sh sent
sh frame 3 020000000002
sh sent
~ sh settle
ovs-vsctl set Bridge br0 flood_vlans=0,10
sh learned
sh frame 3 020000000002
sh sent
sh learned
~ sh settle
ovs-vsctl clear Bridge br0 flood_vlans
sh frame 3 ffffffffffff
sh frame 2 020000000003
sh sent
sh learned
