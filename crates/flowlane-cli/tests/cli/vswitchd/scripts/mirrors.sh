# Mirrors, policing and QoS. Frames come by ovs-ofctl packet-out, which mirrors take as packets that the port has received.
ovs-vsctl add-br br0 -- set Bridge br0 datapath_type=netdev
ovs-vsctl add-port br0 d1 -- add-port br0 d2 tag=10 -- add-port br0 d3 trunks=10,20 -- add-port br0 d4 -- add-port br0 d5 -- set Interface d1 type=dummy ofport_request=1 -- set Interface d2 type=dummy ofport_request=2 -- set Interface d3 type=dummy ofport_request=3 -- set Interface d4 type=dummy ofport_request=4 -- set Interface d5 type=dummy ofport_request=5
~ printf '%s\n' 'ovs-ofctl dump-ports br0 | sed "1d; s/=?/=0/g" | paste - - | tr -s " " | grep -v LOCAL | sed "s/.*port *\([^:]*\):.*tx pkts=\([0-9]*\), bytes=\([0-9]*\).*/\1 \2 \3/" | sort' > sent; printf '%s\n' 'ovs-ofctl packet-out br0 "in_port=$1,packet=${3:-ffffffffffff}0200000000010800$(printf 00%.0s $(seq 46)),actions=$2"' > frame
sh sent
# All packets to a port. Open vSwitch's table is in that of rules, so that each packet needs none.
ovs-vsctl -- --id=@p get Port d5 -- --id=@m create Mirror name=m0 select_all=true output_port=@p -- set Bridge br0 mirrors=@m | wc -l
sh frame d1 output:4
sh sent
sh frame d1 output:4,output:2,output:3
sh sent
sh frame d1 mod_vlan_vid:20,output:3
sh sent
sh frame d1 normal
sh sent
sh frame d1 flood
sh sent
sh frame d1 drop
sh sent
# What a mirror's port receives is dropped.
sh frame d5 output:4
sh sent
# Of the datapath's actions, the number of outputs: Open vSwitch numbers ports that come together in any order.
ovs-appctl ofproto/trace br0 'in_port=1,dl_type=0x88b6,dl_src=02:00:00:00:00:01,dl_dst=ff:ff:ff:ff:ff:ff' | sed -n 's/Datapath actions: //p' | tr , '\n' | grep -c '^[0-9]*$'
ovs-appctl ofproto/trace br0 'in_port=5,dl_type=0x88b6,dl_src=02:00:00:00:00:01,dl_dst=ff:ff:ff:ff:ff:ff' | grep Datapath
ovs-vsctl --columns=name,select_all,select_src_port,select_dst_port,select_vlan,output_vlan,snaplen list Mirror
ovs-vsctl wait-until Mirror m0 statistics:tx_packets=6
ovs-vsctl get Mirror m0 statistics
# Packets that leave by a port, or come by another.
ovs-vsctl -- --id=@p get Port d5 -- --id=@a get Port d2 -- --id=@b get Port d4 -- --id=@m create Mirror name=m1 select_src_port=@b select_dst_port=@a output_port=@p -- set Bridge br0 mirrors=@m | wc -l
sh frame d1 output:4
sh frame d1 output:2
sh sent
sh frame d4 output:1,output:2
sh sent
# A packet that an access port does not carry is not taken.
sh frame d1 mod_vlan_vid:20,output:2
sh sent
# The first bytes of packets in a VLAN.
ovs-vsctl set Mirror m1 select_all=true snaplen=20 select_vlan=20
sh frame d1 output:3
sh frame d1 mod_vlan_vid:20,output:3
sh sent
ovs-vsctl set Mirror m1 snaplen=13
# A VLAN as the destination.
ovs-vsctl clear Mirror m1 output_port snaplen select_vlan -- set Mirror m1 output_vlan=20
sh frame d1 output:4
sh sent
sh frame d4 drop
sh sent
sh frame d4 drop 0180c2000002
sh sent
ovs-appctl ofproto/trace br0 'in_port=1,dl_type=0x88b6,dl_src=02:00:00:00:00:01,dl_dst=ff:ff:ff:ff:ff:ff' | sed -n 's/Datapath actions: //p' | tr , '\n' | grep -c '^[0-9]*$'
# Two mirrors, and one without a destination.
ovs-vsctl -- --id=@p get Port d5 -- --id=@q get Port d4 -- --id=@a get Port d1 -- --id=@m create Mirror name=m2 select_src_port=@a output_port=@p -- --id=@n create Mirror name=m3 select_dst_port=@p output_port=@q -- --id=@o create Mirror name=m4 select_all=true -- set Bridge br0 mirrors=@m,@n,@o | wc -l
sh frame d1 output:3
sh sent
sh frame d2 output:3
sh sent
ovs-vsctl clear Bridge br0 mirrors
sh frame d1 normal
sh sent
ovs-vsctl list Mirror
# Policing.
ovs-vsctl set Interface d1 ingress_policing_rate=1000 ingress_policing_burst=100
ovs-vsctl --columns=ingress_policing_rate,ingress_policing_burst,ingress_policing_kpkts_rate,ingress_policing_kpkts_burst,error list Interface d1
ovs-vsctl set Interface d1 ingress_policing_rate=-1
# QoS. Open vSwitch's user space has no type for a dummy port; Flowlane has its policer for each port.
ovs-appctl qos/show d1
ovs-appctl qos/show-types nothing
ovs-appctl qos/show-types
ovs-vsctl -- --id=@q create QoS type=linux-htb other_config:max-rate=1000000 -- set Port d1 qos=@q | wc -l
ovs-appctl qos/show d1
ovs-vsctl get Interface d1 ofport error
ovs-vsctl clear Port d1 qos
ovs-vsctl del-br br0
