# Groups of every version, and what is listed of actions that few rules have.
ovs-vsctl add-br br0 -- set Bridge br0 datapath_type=netdev fail-mode=secure
ovs-vsctl add-port br0 d1 -- set Interface d1 type=dummy ofport_request=1
ovs-vsctl add-port br0 d2 -- set Interface d2 type=dummy ofport_request=2
# Buckets at every place. Open vSwitch ends itself where none are inserted as the first or last.
ovs-ofctl -OOpenFlow15 add-group br0 'group_id=1,type=select,bucket=bucket_id:5,actions=output:1,bucket=bucket_id:7,actions=output:2'
ovs-ofctl -OOpenFlow15 insert-buckets br0 'group_id=1,command_bucket_id=first,bucket=bucket_id:9,actions=output:3'
ovs-ofctl -OOpenFlow15 insert-buckets br0 'group_id=1,command_bucket_id=last,bucket=bucket_id:10,actions=output:3'
ovs-ofctl -OOpenFlow15 insert-buckets br0 'group_id=1,command_bucket_id=5,bucket=bucket_id:11,actions=output:3,bucket=bucket_id:12,actions=output:3'
ovs-ofctl -OOpenFlow15 insert-buckets br0 'group_id=1,command_bucket_id=all,bucket=bucket_id:13,actions=output:3'
ovs-ofctl -OOpenFlow15 insert-buckets br0 'group_id=1,command_bucket_id=99,bucket=bucket_id:14,actions=output:3'
ovs-ofctl -OOpenFlow15 insert-buckets br0 'group_id=1,command_bucket_id=last,bucket=bucket_id:5,actions=output:3'
ovs-ofctl -OOpenFlow15 insert-buckets br0 'group_id=1,command_bucket_id=last,bucket=bucket_id:20,actions=output:3,bucket=bucket_id:20,actions=output:3'
ovs-ofctl -OOpenFlow15 insert-buckets br0 'group_id=9,command_bucket_id=last,bucket=actions=output:3'
ovs-ofctl -OOpenFlow15 insert-buckets br0 'group_id=1,bucket=actions=output:3'
ovs-ofctl -OOpenFlow15 insert-buckets br0 'group_id=1,command_bucket_id=last,bucket=actions=group:77'
ovs-ofctl -OOpenFlow15 dump-groups br0
ovs-ofctl -OOpenFlow13 dump-groups br0
ovs-ofctl -OOpenFlow14 dump-groups br0
ovs-ofctl dump-groups br0
ovs-ofctl -OOpenFlow15 dump-groups br0 8
ovs-ofctl -OOpenFlow15 remove-buckets br0 'group_id=1,command_bucket_id=first'
ovs-ofctl -OOpenFlow15 remove-buckets br0 'group_id=1,command_bucket_id=last'
ovs-ofctl -OOpenFlow15 remove-buckets br0 'group_id=1,command_bucket_id=5'
ovs-ofctl -OOpenFlow15 remove-buckets br0 'group_id=1,command_bucket_id=5'
ovs-ofctl -OOpenFlow15 remove-buckets br0 'group_id=9,command_bucket_id=first'
ovs-ofctl -OOpenFlow15 dump-groups br0
ovs-ofctl -OOpenFlow15 remove-buckets br0 'group_id=1,command_bucket_id=all'
ovs-ofctl -OOpenFlow15 dump-groups br0
# Kinds, methods and chains. Open vSwitch takes groups that lead to themselves.
ovs-ofctl -OOpenFlow13 mod-group br0 'group_id=1,type=ff,bucket=watch_port:1,actions=output:1,bucket=watch_group:7,actions=output:2'
ovs-ofctl -OOpenFlow13 mod-group br0 'group_id=1,type=ff,bucket=actions=output:1'
ovs-ofctl -OOpenFlow13 mod-group br0 'group_id=1,type=indirect,bucket=actions=output:1,bucket=actions=output:2'
ovs-ofctl -OOpenFlow13 mod-group br0 'group_id=2,type=all,bucket=actions=output:1'
ovs-ofctl -OOpenFlow13 --may-create mod-group br0 'group_id=2,type=all,bucket=actions=output:1'
ovs-ofctl -OOpenFlow13 add-group br0 'group_id=2,type=all,bucket=actions=output:1'
ovs-ofctl -OOpenFlow13 add-group br0 'group_id=6,type=indirect'
ovs-ofctl -OOpenFlow13 add-group br0 'group_id=8,type=all,bucket=weight:4,actions=output:1'
ovs-ofctl -OOpenFlow13 add-group br0 'group_id=10,type=all,bucket=actions=group:2'
ovs-ofctl -OOpenFlow15 add-group br0 'group_id=20,type=select,selection_method=hash,fields(ip_src,ip_dst),bucket=actions=1'
ovs-ofctl -OOpenFlow15 add-group br0 'group_id=22,type=all,selection_method=dp_hash,bucket=actions=1'
ovs-ofctl -OOpenFlow15 add-group br0 'group_id=23,type=select,selection_method=frob,bucket=actions=1'
ovs-ofctl -OOpenFlow15 dump-groups br0 | sort
ovs-ofctl -OOpenFlow13 dump-groups br0 | sort
ovs-ofctl dump-groups br0 | sort
ovs-ofctl -OOpenFlow13 dump-group-stats br0 | sort
# Here groups that lead to themselves are refused, which is a capability, and there are at most 65,536.
ovs-ofctl -OOpenFlow13 dump-group-features br0 | sed '/Capabilities:/d; /max_groups=/d'
ovs-ofctl -OOpenFlow15 dump-group-features br0 | sed '/Capabilities:/d; /max_groups=/d'
# Actions.
ovs-ofctl -OOpenFlow13 add-flow br0 'priority=1,actions=write_metadata:0xff/0xf,goto_table:1'
ovs-ofctl -OOpenFlow13 add-flow br0 'priority=2,ip,actions=clone(conjunction(1,1/2))'
ovs-ofctl -OOpenFlow13 add-flow br0 'priority=3,ip,actions=clone(conjunction(1,1/2)),output:2'
ovs-ofctl -OOpenFlow13 add-flow br0 'priority=4,actions=push:reg0[],pop:ct_mark[]'
ovs-ofctl -OOpenFlow13 add-flow br0 'priority=5,actions=push:reg0[],pop:ct_label[32..63]'
ovs-ofctl -OOpenFlow13 add-flow br0 'priority=6,actions=learn(table=1,load:0x1->ct_mark[])'
ovs-ofctl -OOpenFlow13 add-flow br0 'priority=7,actions=set_field:1->ct_mark'
ovs-ofctl -OOpenFlow13 --no-stats dump-flows br0 | sort
ovs-ofctl -OOpenFlow15 --no-stats dump-flows br0 | sort
# Monitors of rules.
timeout 3 ovs-ofctl -OOpenFlow13 monitor br0 'watch:!initial,out_port=2' > mon.txt 2>&1 & sleep 1; ovs-ofctl -OOpenFlow13 add-flow br0 table=2,priority=1,reg0=1,actions=1; ovs-ofctl -OOpenFlow13 --strict mod-flows br0 table=2,priority=1,reg0=1,actions=2; ovs-ofctl -OOpenFlow13 del-flows br0 table=2; wait; cat mon.txt
timeout 3 ovs-ofctl -OOpenFlow14 monitor br0 'watch:!initial' > mon.txt 2>&1 & sleep 1; ovs-ofctl -OOpenFlow14 add-flow br0 table=2,priority=1,reg0=1,importance=4,actions=1; ovs-ofctl -OOpenFlow14 --strict mod-flows br0 table=2,priority=1,reg0=1,actions=2; ovs-ofctl -OOpenFlow14 del-flows br0 table=2; wait; cat mon.txt
