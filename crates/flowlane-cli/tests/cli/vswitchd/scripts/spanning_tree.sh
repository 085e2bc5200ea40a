# Spanning trees of bridges without neighbours. Ports are listed in any order.
ovs-vsctl add-br br0 -- set Bridge br0 datapath_type=netdev other_config:hwaddr=02:00:00:00:00:aa
ovs-vsctl add-port br0 d1 -- add-port br0 d2 -- set Interface d1 type=dummy ofport_request=1 -- set Interface d2 type=dummy ofport_request=2
ovs-vsctl wait-until Interface br0 'mac_in_use="02:00:00:00:00:aa"'
ovs-appctl rstp/show
ovs-appctl rstp/show nothing
ovs-appctl rstp/tcn
ovs-appctl rstp/tcn nothing
ovs-appctl stp/tcn
ovs-appctl stp/tcn nothing
ovs-vsctl set Bridge br0 rstp_enable=true -- set Port d1 other_config:rstp-path-cost=2000 other_config:rstp-port-num=1 -- set Port d2 other_config:rstp-path-cost=2000 other_config:rstp-port-num=2
sleep 7
ovs-appctl rstp/show | sort
ovs-appctl rstp/show br0 | sed '/Interface/,$d'
ovs-vsctl set Bridge br0 other_config:rstp-priority=4096 other_config:rstp-max-age=10 other_config:rstp-forward-delay=10 -- set Port d2 other_config:rstp-port-priority=16
sleep 7
ovs-appctl rstp/show br0 | sort
ovs-vsctl get Bridge br0 rstp_status status
ovs-vsctl get Port d1 rstp_status status
ovs-vsctl get Port d2 rstp_status
ovs-appctl rstp/tcn br0
ovs-vsctl set Port d2 other_config:rstp-enable=false
sleep 1
ovs-appctl rstp/show br0 | sort
ovs-vsctl get Port d2 rstp_status
ovs-vsctl set Bridge br0 rstp_enable=false
sleep 6
ovs-vsctl get Bridge br0 rstp_status
ovs-appctl rstp/show | wc -l
