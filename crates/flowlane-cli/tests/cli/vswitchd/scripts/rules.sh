# Rules, traces and connections.
ovs-vsctl add-br br0 -- set Bridge br0 datapath_type=netdev
ovs-vsctl add-port br0 d1 -- set Interface d1 type=dummy
ovs-vsctl add-port br0 d2 tag=7 -- set Interface d2 type=dummy
ovs-vsctl add-port br0 d3 -- set Interface d3 type=dummy
# Rules are listed in any order; Open vSwitch lists rules of its own in table 254. Fields and registers have names of either.
ovs-appctl bridge/dump-flows br0 | grep -v table_id=254
ovs-ofctl del-flows br0
ovs-ofctl add-flow br0 'cookie=5,priority=10,ip,in_port=1,nw_dst=10.0.0.0/8,actions=ct(table=1,zone=7)'
ovs-ofctl add-flow br0 'table=1,ip,ct_state=+trk+new,actions=ct(commit,zone=7),output:2'
ovs-ofctl add-flow br0 'table=1,ip,ct_state=+trk+est,actions=output:3'
ovs-ofctl add-flow br0 'arp,actions=normal'
ovs-ofctl add-flow br0 'priority=3,ipv6,actions=load:5->NXM_NX_REG1[],resubmit(,2)'
ovs-ofctl add-flow br0 'table=2,reg1=5,actions=mod_vlan_vid:5,output:3,controller'
ovs-ofctl add-flow br0 'priority=2,dl_type=0x88cc,actions=drop'
ovs-ofctl add-flow br0 'priority=4,udp,tp_dst=53,actions=output:3,output:2'
ovs-appctl bridge/dump-flows br0 | grep -v table_id=254 | sed 's/duration=[^,]*, //; s/NXM_NX_REG1\[\]/reg1/; s/\(ct_state=[^,]*\),ip,/ip,\1,/' | sort
ovs-appctl bridge/dump-flows --offload-stats br0 | grep -v table_id=254 | sed 's/duration=[^,]*, //; s/NXM_NX_REG1\[\]/reg1/; s/\(ct_state=[^,]*\),ip,/ip,\1,/' | sort
ovs-appctl bridge/dump-flows br9
ovs-appctl bridge/dump-flows
# Traces: the tables, rules and actions. What else there is to say, each says in its own words: Open vSwitch all fields of the packet
# with zeros, its megaflow and its datapath's actions, Flowlane what changes and why.
ovs-appctl ofproto/trace br0 'in_port=1,tcp,nw_src=10.0.0.1,nw_dst=10.0.0.2,tcp_src=5,tcp_dst=80' | sed -n 's/\(ct_state=[^,]*\),ip,/ip,\1,/; /^ *[0-9]*\. /p; /^    [a-z]*[:(]/p'
ovs-appctl ofproto/trace br0 'in_port=1,tcp,nw_src=10.0.0.1,nw_dst=10.0.0.2,tcp_src=5,tcp_dst=80' --ct-next trk,est | sed -n 's/\(ct_state=[^,]*\),ip,/ip,\1,/; /^ *[0-9]*\. /p; /^    [a-z]*[:(]/p'
ovs-appctl ofproto/trace br0 'in_port=1,tcp,nw_src=10.0.0.1,nw_dst=10.0.0.2,tcp_src=5,tcp_dst=80' --ct-next 'trk,est,rpl' | sed -n 's/\(ct_state=[^,]*\),ip,/ip,\1,/; /^ *[0-9]*\. /p; /^    [a-z]*[:(]/p'
ovs-appctl ofproto/trace br0 'in_port=1,udp,nw_dst=10.0.0.2' -generate | sed -n 's/\(ct_state=[^,]*\),ip,/ip,\1,/; /^ *[0-9]*\. /p; /^    [a-z]*[:(]/p'
ovs-appctl ofproto/trace br0 'in_port=1,tcp,nw_src=10.0.0.1,nw_dst=11.0.0.2,tcp_src=5,tcp_dst=80' | grep -v 'Flow:\|Final flow:\|Megaflow:\|     [->]>'
ovs-appctl ofproto/trace br0 'in_port=1,udp,nw_src=10.0.0.1,nw_dst=11.0.0.2,udp_dst=53' | grep -v 'Flow:\|Final flow:\|Megaflow:\|     [->]>'
ovs-appctl ofproto/trace br0 'in_port=d3,udp,nw_src=10.0.0.1,nw_dst=11.0.0.2,udp_dst=53' | grep -v 'Flow:\|Final flow:\|Megaflow:\|     [->]>'
ovs-appctl ofproto/trace br0 'in_port=1,dl_type=0x88cc' | grep -v 'Flow:\|Final flow:\|Megaflow:\|     [->]>'
ovs-appctl ofproto/trace br0 'in_port=d1,arp,arp_spa=10.0.0.1,arp_tpa=10.0.0.2,dl_src=02:00:00:00:00:09,dl_dst=ff:ff:ff:ff:ff:ff' | grep -v 'Flow:\|Final flow:\|Megaflow:\|     [->]>\|Datapath'
ovs-appctl ofproto/trace br0 'in_port=1,tcp6,ipv6_src=fd00::1,ipv6_dst=fd00::2,tcp_src=5,tcp_dst=80' | sed 's/NXM_NX_REG1\[\]/reg1/' | grep -v 'Flow:\|Final flow:\|Megaflow:\|     [->]>\|Datapath'
ovs-appctl ofproto/trace br0 in_port=d3 0200000000010200000000030800450000200000000040116666c0a80001c0a8000200010035000c0000000000000000000000000000 | grep -v 'Flow:\|Final flow:\|Megaflow:\|     [->]>'
ovs-appctl ofproto/trace br9 'in_port=1'
ovs-appctl ofproto/trace br0 'in_port=1' --ct-next
ovs-appctl ofproto/trace br0 'in_port=1' --dance
# Each says in its own words where a flow is wrong.
ovs-appctl ofproto/trace br0 'in_port=1,frob' > out 2>&1; echo $?
# Connections.
ovs-ofctl packet-out br0 'in_port=1,packet=02000000000102000000000208004500002400000000401166c70a0000010a000002000100020010000000000000000000000000,actions=table'
ovs-appctl dpctl/dump-conntrack
ovs-appctl dpctl/dump-conntrack zone=7
ovs-appctl dpctl/dump-conntrack -s zone=7 | sed 's/timeout=5[0-9]/timeout=5x/'
ovs-appctl dpctl/dump-conntrack zone=8
ovs-appctl dpctl/dump-conntrack zone=x
ovs-appctl dpctl/dump-conntrack nothing
ovs-appctl dpctl/ct-stats-show
ovs-appctl dpctl/ct-stats-show zone=7
ovs-appctl dpctl/ct-stats-show zone=8
ovs-appctl dpctl/ct-get-nconns
ovs-appctl dpctl/ct-get-maxconns
ovs-appctl dpctl/ct-get-limits
ovs-appctl dpctl/flush-conntrack zone=8
ovs-appctl dpctl/ct-get-nconns
ovs-appctl dpctl/flush-conntrack zone=7
ovs-appctl dpctl/flush-conntrack
ovs-appctl dpctl/dump-conntrack
# No packet has come through a port.
ovs-appctl dpctl/dump-flows
ovs-appctl dpctl/dump-flows -m
ovs-appctl dpctl/dump-flows netdev@nothing
ovs-appctl dpif/dump-flows br0
ovs-appctl dpif/dump-flows br9
