# Bridges and ports of all types, by ovs-vsctl, ovs-ofctl and ovs-appctl.
ovs-vsctl add-br br0 -- set Bridge br0 datapath_type=netdev
ovs-vsctl add-br br0
ovs-vsctl --may-exist add-br br0
~ ip link add e1 type veth peer name e1p && ip link set e1 up && ip link set e1p up && ip link set br0 up
ovs-vsctl add-port br0 e1
ovs-vsctl add-port br0 i2 -- set Interface i2 type=internal
ovs-vsctl add-port br0 t3 -- set Interface t3 type=tap
ovs-vsctl add-port br0 d7 -- set Interface d7 type=dummy ofport_request=7
ovs-vsctl add-port br0 pa -- set Interface pa type=patch options:peer=pb
ovs-vsctl add-br br1 -- set Bridge br1 datapath_type=netdev
ovs-vsctl add-port br1 pb -- set Interface pb type=patch options:peer=pa
ovs-vsctl add-port br0 g1 -- set Interface g1 type=geneve options:remote_ip=192.0.2.2 options:key=7
ovs-vsctl add-port br0 v1 -- set Interface v1 type=vxlan options:remote_ip=flow options:key=flow
# Ports that cannot be there. Of a type that there is none of, Flowlane says so behind Open vSwitch's words.
ovs-vsctl add-port br0 nowhere
ovs-vsctl add-port br0 weird -- set Interface weird type=weird 2>&1 | sed 's/protocol).*/protocol)/'
ovs-vsctl add-port br0 nopeer -- set Interface nopeer type=patch
ovs-vsctl add-port br0 noremote -- set Interface noremote type=vxlan
ovs-vsctl wait-until Interface e1 link_state=up -- wait-until Interface br0 link_state=up
# Ports are listed in the order of random identifiers.
ovs-vsctl show | sed 's/protocol).*"/protocol)"/' | sort
ovs-vsctl list-br
ovs-vsctl list-ports br0
ovs-vsctl list-ifaces br0
ovs-vsctl --columns=name,type,ofport,error,admin_state,link_state list Interface br0 e1 i2 t3 d7 pa pb g1 v1 nowhere nopeer noremote
ovs-vsctl --columns=name,mtu,mtu_request,mac_in_use,link_speed,duplex,status list Interface br0 e1 i2 t3 d7 pa pb g1 v1 nowhere nopeer
ovs-vsctl --columns=name,link_resets,ingress_policing_rate,lacp_current,cfm_fault,lldp list Interface e1 d7 pa g1
# An interface's index is that of its system; others have none.
test $(ovs-vsctl get Interface e1 ifindex) = $(cat /sys/class/net/e1/ifindex)
ovs-vsctl get Interface pa ifindex
# Of the statistics, the names: what Open vSwitch's dummy ports count of their queues, no other port does.
ovs-vsctl get Interface e1 statistics | sed 's/=[0-9]*//g'
ovs-vsctl get Interface i2 statistics | sed 's/=[0-9]*//g'
ovs-vsctl get Interface pa statistics | sed 's/=[0-9]*//g'
ovs-vsctl get Interface g1 statistics | sed 's/=[0-9]*//g'
ovs-vsctl get Interface d7 statistics | sed 's/rx_custom[^ ]* //g; s/[rt]x_q0[^ }]*[ }]*//g; s/[, }]*$//'
ovs-vsctl --columns=name,datapath_id,status,rstp_status list Bridge br0
ovs-vsctl --columns=name,statistics,status,bond_active_slave list Port e1 br0
ovs-vsctl del-port br0 nowhere
ovs-vsctl del-port br0 nowhere
ovs-vsctl del-port weird -- del-port nopeer -- del-port noremote
# The datapath: Open vSwitch's has a port 0 of its own, and other caches to count.
ovs-appctl dpif/show | sed 's/hit:.*/hit:/'
ovs-appctl dpctl/show | grep -v 'port 0: ovs-netdev\|lookups: hit:\|flows: '
ovs-appctl dpctl/show netdev@ovs-netdev | grep -c 'lookups: hit:[0-9]* missed:[0-9]* lost:[0-9]*$\|flows: [0-9]*$'
ovs-appctl dpctl/dump-dps
ovs-appctl dpif/dump-dps
ovs-appctl ofproto/list
ovs-ofctl show br0 | grep -v 'features\|actions:\|n_tables\|capabilities'
ovs-ofctl dump-ports-desc br0
# An OpenFlow switch lists its ports in any order. Open vSwitch counts no drops of ports without an interface, and writes ?.
ovs-ofctl dump-ports br0 | sed '1d; s/=?/=0/g' | paste - - | tr -s ' ' | sort
ovs-ofctl dump-ports br0 e1
ovs-ofctl dump-ports br0 99
ovs-ofctl -O OpenFlow13 show br0 | grep -v 'n_buffers\|capabilities'
# Settings of ports.
ovs-ofctl mod-port br0 e1 no-flood
ovs-ofctl mod-port br0 e1 no-forward
ovs-ofctl mod-port br0 d7 no-receive
ovs-ofctl mod-port br0 d7 no-packet-in
ovs-ofctl dump-ports-desc br0
ovs-ofctl mod-port br0 e1 down
ovs-vsctl wait-until Interface e1 admin_state=down
ovs-ofctl dump-ports-desc br0 | grep -A2 '(e1)'
ip -br link show e1 | awk '{print $2}'
ovs-ofctl mod-port br0 e1 up
ovs-ofctl mod-port br0 e1 flood
ovs-ofctl mod-port br0 e1 forward
ovs-vsctl wait-until Interface e1 link_state=up
ovs-ofctl dump-ports-desc br0 | grep -A2 '(e1)'
~ ip link set e1 down
ovs-vsctl wait-until Interface e1 admin_state=down
ovs-ofctl dump-ports-desc br0 | grep -A2 '(e1)'
ovs-ofctl mod-port br0 99 down
# Numbers of ports.
ovs-vsctl set Interface d7 ofport_request=9
ovs-vsctl get Interface d7 ofport
ovs-vsctl set Interface e1 ofport_request=7
ovs-vsctl get Interface e1 ofport
ovs-vsctl set Interface i2 ofport_request=7
ovs-vsctl get Interface i2 ofport
ovs-vsctl set Interface i2 ofport_request=0
ovs-vsctl set Interface i2 ofport_request=65279
ovs-vsctl get Interface i2 ofport
# Fake bridges.
ovs-vsctl add-br br0v br0 10
ovs-vsctl list-br
ovs-vsctl br-to-vlan br0v
ovs-vsctl br-to-parent br0v
ovs-vsctl add-port br0v d11 -- set Interface d11 type=dummy ofport_request=11
ovs-vsctl add-port br0 d12 tag=20 -- set Interface d12 type=dummy ofport_request=12
ovs-vsctl list-ports br0v
ovs-vsctl get Port d11 tag
ovs-vsctl get Interface br0v type error
ip link show br0v | grep -c br0v
ovs-vsctl port-to-br d11
ovs-vsctl iface-to-br d12
ovs-vsctl iface-to-br d99
ovs-vsctl br-exists br9
ovs-vsctl del-br br0v
ovs-vsctl list-ports br0
# Bonds there are none of in Flowlane, which gives their interfaces an error; without any there is nothing to list.
ovs-appctl bond/list
ovs-appctl bond/show
ovs-appctl bond/show nothing
ovs-appctl lacp/show
ovs-appctl lacp/show nothing
ovs-appctl cfm/show
ovs-appctl cfm/show nothing
ovs-appctl stp/show
ovs-appctl stp/show nothing
ovs-appctl mdb/show br0
ovs-appctl mdb/show nothing
ovs-appctl qos/show e1
ovs-appctl qos/show nothing
# Addresses, identifiers and sizes.
ovs-vsctl set Bridge br0 other_config:datapath-id=0000000000000042
ovs-vsctl wait-until Bridge br0 datapath_id=0000000000000042
ovs-vsctl set Bridge br0 other_config:hwaddr=02:00:00:00:00:42
ovs-vsctl wait-until Interface br0 'mac_in_use="02:00:00:00:00:42"'
cat /sys/class/net/br0/address | tr 0-9a-f x-z
ovs-vsctl remove Bridge br0 other_config datapath-id
ovs-vsctl wait-until Bridge br0 datapath_id=0000020000000042
ovs-ofctl show br0 | head -1
ovs-vsctl add-port br0 i4 -- set Interface i4 type=internal mtu_request=1400
ovs-vsctl get Interface i4 mtu mtu_request
cat /sys/class/net/i4/mtu
ovs-vsctl set Interface i4 mtu_request=99999
ovs-vsctl get Interface i4 mtu
ovs-vsctl clear Interface i4 mtu_request
ovs-vsctl wait-until Interface i4 mtu=1500
ovs-vsctl set Interface i4 mac='"02:00:00:00:00:77"'
ovs-vsctl wait-until Interface i4 'mac_in_use="02:00:00:00:00:77"'
# All gone.
ovs-vsctl del-br br0
ovs-vsctl del-br br1
ovs-vsctl del-br br1
ovs-vsctl list-br
ovs-appctl dpif/show
ovs-appctl dpctl/dump-dps
ip -br link | awk '{print $1}' | sort
