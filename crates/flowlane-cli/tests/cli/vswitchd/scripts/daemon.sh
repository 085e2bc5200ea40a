# Learned addresses, and the daemon's own commands.
ovs-vsctl add-br br0 -- set Bridge br0 datapath_type=netdev
ovs-vsctl add-port br0 d1 -- set Interface d1 type=dummy
ovs-vsctl add-port br0 d2 tag=7 -- set Interface d2 type=dummy
ovs-vsctl add-port br0 d3 -- set Interface d3 type=dummy
ovs-appctl fdb/show br0
ovs-appctl fdb/add br0 d1 0 02:00:00:00:00:01
ovs-appctl fdb/add br0 d2 7 02:00:00:00:00:02
ovs-appctl fdb/add br0 1 0 02:00:00:00:00:01
ovs-appctl fdb/add br0 d9 0 02:00:00:00:00:01
ovs-appctl fdb/add br0 d1 0 02:zz
ovs-appctl fdb/add br9 d1 0 02:00:00:00:00:01
ovs-appctl fdb/add br0
# Addresses are listed in the order of their use in Open vSwitch.
ovs-appctl fdb/show br0 | sed 's/  [0-9]$/  0/' | sort
ovs-ofctl packet-out br0 'in_port=3,packet=0200000000010200000000030800450000240000000040116666c0a80001c0a80002000100020010000000000000000000000000,actions=normal'
ovs-appctl fdb/show br0 | sed 's/  [0-9]$/  0/' | sort
ovs-appctl fdb/stats-show br0
ovs-appctl fdb/stats-clear br0
ovs-appctl fdb/stats-show br0
# A static address does not move.
ovs-ofctl packet-out br0 'in_port=3,packet=0200000000030200000000010800450000240000000040116666c0a80001c0a80002000100020010000000000000000000000000,actions=normal'
ovs-appctl fdb/show br0 | sed 's/  [0-9]$/  0/' | sort
ovs-appctl fdb/del br0 0 02:00:00:00:00:01
ovs-appctl fdb/del br0 0 02:00:00:00:00:01
ovs-appctl fdb/del br0 0 02:00:00:00:00:03
ovs-appctl fdb/del br0 0 zz
ovs-appctl fdb/del br9 0 02:00:00:00:00:01
ovs-appctl fdb/flush br0
ovs-appctl fdb/flush br9
ovs-appctl fdb/flush
ovs-appctl fdb/show br0
ovs-appctl fdb/show br9
ovs-appctl fdb/show
ovs-appctl fdb/stats-show br9
# A port that goes takes its addresses along; those that are static are not counted less in Open vSwitch.
ovs-vsctl del-port d2
ovs-appctl fdb/show br0
ovs-vsctl set Bridge br0 other_config:mac-table-size=10 other_config:mac-aging-time=15
ovs-appctl fdb/stats-show br0 | grep -v static
ovs-vsctl remove Bridge br0 other_config mac-table-size -- set Bridge br0 other_config:mac-aging-time=5
ovs-appctl fdb/stats-show br0 | grep -v static
# Each counts what it has; the form is one.
ovs-appctl memory/show | grep -c '^[A-Za-z_-]*:[0-9]*\( [A-Za-z_-]*:[0-9]*\)*$'
ovs-appctl memory/show | grep -o 'ports:[0-9]*'
ovs-appctl coverage/show | grep -cv '^[a-z0-9_]* \+[0-9.]*/sec *[0-9.]*/sec *[0-9.]*/sec   total: [0-9]*$'
ovs-appctl coverage/show | sed -n 's/hash=[0-9a-f]\{8\}:/hash/; 1p; s/^[0-9]* events/events/; $p'
ovs-appctl coverage/show | grep '^mac_learning_learned\|^bridge_reconfigure' | sed 's/[0-9]/n/g; s/  *[n.]*\/sec/ rate/g; s/total: n*$/total/' | sort
ovs-appctl coverage/read-counter mac_learning_learned | tr 0-9 n
ovs-appctl coverage/read-counter nothing
ovs-appctl coverage/read-counter
# Open vSwitch has a hundred modules, Flowlane one.
ovs-appctl vlog/list | sed -n '1,2p; /^vswitchd/p' | sed 's/OFF\|WARN\|INFO/LEVEL/g; s/  *LEVEL/ LEVEL/g'
ovs-appctl vlog/set vswitchd:file:dbg
ovs-appctl vlog/list | grep -o '^vswitchd\|DBG$'
ovs-appctl vlog/set vswitchd:file:loud
ovs-appctl vlog/set nothing:dbg
ovs-appctl vlog/set ANY:console:off
ovs-appctl vlog/set ANY:ANY:off
ovs-appctl vlog/list | tail -1
ovs-appctl vlog/set
ovs-appctl vlog/close
ovs-appctl vlog/reopen
ovs-appctl version | sed 's/(.*//'
# Commands that there are in both have the same arguments.
ovs-appctl list-commands | head -1
ovs-appctl list-commands | grep '^  \(bfd/show\|bond/\(list\|show\)\|bridge/dump-flows\|coverage/\|dpctl/\(ct-get\|ct-stats\|dump-con\|dump-dps\|show\)\|dpif/dump\|fdb/\|lacp/show \|list-commands\|mdb/show\|memory\|ofproto/list \|qos/show \|stp/show\|version\|vlog/[lcs]\)' | grep -v 'tcp-seq\|list-pattern'
ovs-appctl dance
ovs-appctl dpif/show extra words
ovs-appctl exit --cleanup
~ sleep 1
ls | grep 'br0\|vswitchd'
ip -br link | awk '{print $1}' | sort
