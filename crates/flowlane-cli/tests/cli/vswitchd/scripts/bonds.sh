# Bonds and LACP, by ovs-vsctl and ovs-appctl. Open vSwitch lists bonds and their members in the order of a hash, and recirculates
# packets of balance-tcp; times to the next rebalancing differ, and its key of LACP is that of any member where none is set.
~ for n in 1 2; do ip link add a$n type veth peer name b$n; ip link set a$n up; ip link set b$n up; done
ovs-vsctl add-br br0 -- set Bridge br0 datapath_type=netdev
ovs-vsctl add-br br1 -- set Bridge br1 datapath_type=netdev
ovs-appctl -t ovs-vswitchd bond/list | sed 's/a2, a1/a1, a2/'
ovs-appctl -t ovs-vswitchd bond/show
ovs-appctl -t ovs-vswitchd bond/show none
ovs-appctl -t ovs-vswitchd lacp/show
ovs-appctl -t ovs-vswitchd lacp/show-stats
ovs-appctl -t ovs-vswitchd lacp/show none
ovs-appctl -t ovs-vswitchd lacp/show-stats none
ovs-vsctl add-bond br0 bond0 a1 a2 other_config:bond-primary=a1 -- set Interface a1 ofport_request=1 -- set Interface a2 ofport_request=2
~ sleep 1
ovs-appctl -t ovs-vswitchd bond/list | sed 's/a2, a1/a1, a2/'
ovs-appctl -t ovs-vswitchd bond/show bond0 | sed '/^member/,$d'
ovs-appctl -t ovs-vswitchd bond/show bond0 | sed -n '/^member a1/,/^$/p'
ovs-appctl -t ovs-vswitchd bond/show bond0 | sed -n '/^member a2/,/^$/p'
ovs-appctl -t ovs-vswitchd lacp/show bond0
ovs-vsctl --columns=name,bond_mode,bond_active_slave,lacp,status,statistics list Port bond0
ovs-vsctl --columns=name,lacp_current,ofport,error list Interface a1 a2
test "$(ovs-vsctl get Port bond0 bond_active_slave)" = "\"$(cat /sys/class/net/a1/address)\"" && echo the address of a1
# Members, one by one.
ovs-appctl -t ovs-vswitchd bond/set-active-member bond0 a1
ovs-appctl -t ovs-vswitchd bond/set-active-slave bond0 a2
ovs-appctl -t ovs-vswitchd bond/set-active-member bond0 a9
ovs-appctl -t ovs-vswitchd bond/set-active-member none a1
ovs-appctl -t ovs-vswitchd bond/set-active-slave bond0
ovs-appctl -t ovs-vswitchd bond/disable-member bond0 a2
ovs-appctl -t ovs-vswitchd bond/enable-slave bond0 a2
ovs-appctl -t ovs-vswitchd bond/disable-slave bond0 a9
ovs-appctl -t ovs-vswitchd bond/enable-member none a1
ovs-appctl -t ovs-vswitchd bond/migrate bond0 3 a1
ovs-appctl -t ovs-vswitchd bond/hash 02:00:00:00:00:01
ovs-appctl -t ovs-vswitchd bond/hash 02:00:00:00:00:01 5
ovs-appctl -t ovs-vswitchd bond/hash 02:00:00:00:00:01 5 7
ovs-appctl -t ovs-vswitchd bond/hash 02:00:00:00:00:01 x
ovs-appctl -t ovs-vswitchd bond/hash 02:00:00:00:00:01 5 x
ovs-appctl -t ovs-vswitchd bond/hash zz
ovs-appctl -t ovs-vswitchd bond/hash
# A link goes down, with delays.
ovs-vsctl set Port bond0 bond_updelay=600000 bond_downdelay=500
~ ip link set b1 down && sleep 1
ovs-appctl -t ovs-vswitchd bond/show bond0 | sed -n '/^member a1/,/^$/p'
ovs-appctl -t ovs-vswitchd bond/show bond0 | sed -n '/^member a2/,/^$/p'
~ ip link set b1 up && sleep 0.5
ovs-appctl -t ovs-vswitchd bond/show bond0 | sed -n '/^member a1/,/^$/p' | sed 's/in [0-9]* ms/in TIME/'
ovs-vsctl set Port bond0 bond_updelay=0 bond_downdelay=0
# Modes and their settings.
ovs-vsctl set Port bond0 bond_mode=balance-slb other_config:bond-hash-basis=5 other_config:all-members-active=true
~ sleep 0.5
ovs-appctl -t ovs-vswitchd bond/show bond0 | sed '/^member/,$d' | sed 's/rebalance: [0-9]* ms/rebalance: TIME/'
ovs-appctl -t ovs-vswitchd bond/migrate bond0 3 a1
ovs-appctl -t ovs-vswitchd bond/migrate bond0 300 a2
ovs-appctl -t ovs-vswitchd bond/migrate bond0 3 a9
ovs-appctl -t ovs-vswitchd bond/migrate bond0 x a1
ovs-appctl -t ovs-vswitchd bond/migrate none 3 a1
ovs-appctl -t ovs-vswitchd bond/migrate bond0 3
ovs-vsctl set Port bond0 other_config:bond-rebalance-interval=0
~ sleep 0.5
ovs-appctl -t ovs-vswitchd bond/show bond0 | sed '/^member/,$d'
ovs-vsctl set Port bond0 bond_mode=stable
ovs-vsctl set Port bond0 lacp=maybe
# LACP between the two bridges.
ovs-vsctl set Port bond0 bond_mode=balance-tcp lacp=active other_config:lacp-time=fast other_config:lacp-system-id=02:00:00:00:00:aa other_config:lacp-system-priority=7 -- set Interface a1 other_config:lacp-aggregation-key=5 -- set Interface a2 other_config:lacp-aggregation-key=5
ovs-vsctl add-bond br1 bond1 b1 b2 bond_mode=balance-tcp lacp=passive other_config:lacp-system-id=02:00:00:00:00:bb other_config:lacp-time=fast -- set Interface b1 ofport_request=3 other_config:lacp-port-id=77 other_config:lacp-port-priority=9 other_config:lacp-aggregation-key=33 -- set Interface b2 ofport_request=4 other_config:lacp-aggregation-key=33
~ ovs-vsctl --timeout=15 wait-until Interface a1 lacp_current=true -- wait-until Interface a2 lacp_current=true -- wait-until Interface b1 lacp_current=true -- wait-until Interface b2 lacp_current=true
~ sleep 4
ovs-appctl -t ovs-vswitchd bond/list | cut -f 1,2 | sort
ovs-appctl -t ovs-vswitchd lacp/show bond0 | head -6
ovs-appctl -t ovs-vswitchd lacp/show bond0 | sed -n '/member: a1/,/partner state/p'
ovs-appctl -t ovs-vswitchd lacp/show bond0 | sed -n '/member: a2/,/partner state/p'
ovs-appctl -t ovs-vswitchd lacp/show bond1 | head -6
ovs-appctl -t ovs-vswitchd lacp/show bond1 | sed -n '/member: b1/,/partner state/p'
ovs-appctl -t ovs-vswitchd lacp/show bond1 | sed -n '/member: b2/,/partner state/p'
ovs-appctl -t ovs-vswitchd lacp/show-stats bond1 | sed -n '/member: b1/,/Changed/p' | sed 's/PDUs: [1-9][0-9]*/PDUs: SOME/'
ovs-appctl -t ovs-vswitchd bond/show bond0 | sed '/^member/,$d' | grep -v -e recirc -e 'active member' | sed 's/rebalance: [0-9]* ms/rebalance: TIME/'
ovs-appctl -t ovs-vswitchd bond/show bond0 | sed -n '/^member a1/,/^$/p' | grep -v 'active member'
ovs-appctl -t ovs-vswitchd bond/show bond0 | sed -n '/^member a2/,/^$/p' | grep -v 'active member'
ovs-vsctl --columns=name,lacp_current list Interface a1 b2
# The other end stops: nothing passes, or one member does.
ovs-vsctl set Port bond1 lacp=off
~ sleep 8
ovs-appctl -t ovs-vswitchd bond/show bond0 | sed '/^member/,$d' | grep -v -e recirc -e 'active member' | sed 's/rebalance: [0-9]* ms/rebalance: TIME/'
ovs-appctl -t ovs-vswitchd bond/show bond0 | sed -n '/^member a1/,/^$/p'
ovs-vsctl --columns=name,lacp_current list Interface a1 b2
ovs-vsctl set Port bond0 other_config:lacp-fallback-ab=true
~ sleep 1
ovs-appctl -t ovs-vswitchd lacp/show bond0 | sed -n '/member: a1/,/may_enable/p'
ovs-appctl -t ovs-vswitchd bond/show bond0 | sed '/^member/,$d' | grep -v recirc
ovs-appctl -t ovs-vswitchd bond/show bond0 | sed -n '/^member a1/,/^$/p'
# One interface is no bond, and may speak LACP.
ovs-vsctl del-port br1 bond1 -- add-port br1 b1 -- set Port b1 lacp=passive other_config:lacp-system-id=02:00:00:00:00:cc -- set Interface b1 ofport_request=3
~ sleep 1
ovs-appctl -t ovs-vswitchd bond/list | cut -f 1,2 | sort
ovs-appctl -t ovs-vswitchd lacp/show b1 | head -6
ovs-vsctl -- --id=@a get Interface a1 -- set Port bond0 interfaces=[@a] lacp=off
~ sleep 0.5
ovs-appctl -t ovs-vswitchd bond/list | sed 's/a2, a1/a1, a2/'
ovs-appctl -t ovs-vswitchd bond/show bond0
ovs-vsctl --columns=name,lacp_current,ofport list Interface a1
