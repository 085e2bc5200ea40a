# Controllers, their states, and what becomes of a bridge without.
ovs-vsctl add-br br0 -- set Bridge br0 datapath_type=netdev
ovs-vsctl get-controller br0
ovs-vsctl get-fail-mode br0
ovs-vsctl set-controller br0 ptcp:6698:127.0.0.1
ovs-vsctl get-controller br0
ovs-vsctl set-fail-mode br0 secure
ovs-vsctl get-fail-mode br0
ovs-vsctl show | sort
ovs-vsctl --columns=target,is_connected,role,connection_mode,max_backoff,inactivity_probe list Controller
~ ip link set lo up
ovs-ofctl -O OpenFlow13 show tcp:127.0.0.1:6698 | head -1
ovs-vsctl set-fail-mode br0 dance
ovs-vsctl del-fail-mode br0
ovs-vsctl get-fail-mode br0
ovs-vsctl del-controller br0
ovs-vsctl get-controller br0
# A controller that is not there.
ovs-vsctl set-controller br0 tcp:127.0.0.1:6699
ovs-vsctl wait-until Controller br0 is_connected=false
ovs-vsctl --columns=target,is_connected,role list Controller
# One that is, whose socket the test has opened.
ovs-vsctl set-controller br0 unix:$OVS_RUNDIR/controller.sock
ovs-vsctl wait-until Controller br0 is_connected=true
ovs-vsctl show | sort
ovs-vsctl --columns=target,is_connected list Controller
ovs-vsctl get Controller br0 status:state
ovs-vsctl set-controller br0 weird:1.2.3.4
ovs-vsctl get-controller br0
ovs-vsctl --columns=target,is_connected,role,status list Controller
ovs-vsctl add-port br0 d1 -- set Interface d1 type=dummy
ovs-vsctl wait-until Interface d1 ofport=1
ovs-vsctl --timeout=1 wait-until Interface d1 ofport=77 2>&1 | sed 's/.*|//'
# Everything but bridges and ports goes.
ovs-vsctl -- --id=@m create Mirror name=m0 select_all=true -- set Bridge br0 mirrors=@m | wc -l
ovs-vsctl emer-reset
ovs-vsctl show | sort
ovs-vsctl --columns=name,controller,fail_mode,mirrors,other_config list Bridge
ovs-vsctl list Mirror
