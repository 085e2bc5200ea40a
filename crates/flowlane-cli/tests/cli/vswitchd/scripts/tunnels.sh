# Tunnels: the outer packets byte by byte, and which port receives what. Packets leave by a bridge with an address, which Open vSwitch's
# datapath in user space needs; the neighbour at the wire's end never speaks.
~ ip link add u0 type veth peer name u1 && ip link set u1 address 02:00:00:00:00:0c && ip link set u0 up && ip link set u1 up
ovs-vsctl add-br phy -- set Bridge phy datapath_type=netdev other_config:hwaddr=02:00:00:00:00:0a -- add-port phy u0
ovs-vsctl add-br br0 -- set Bridge br0 datapath_type=netdev
ovs-vsctl add-port br0 d1 -- set Interface d1 type=dummy ofport_request=1 -- add-port br0 d2 -- set Interface d2 type=dummy ofport_request=2
~ sysctl -qw net.ipv6.conf.phy.disable_ipv6=0; ip addr add 192.0.2.1/24 dev phy; ip link set phy up; ip addr add fd00::1/64 dev phy nodad; ip addr add 192.0.2.9/24 dev phy
~ ip neigh add 192.0.2.2 lladdr 02:00:00:00:00:0b dev phy; ip neigh add 192.0.2.3 lladdr 02:00:00:00:00:0b dev phy; ip -6 neigh add fd00::2 lladdr 02:00:00:00:00:0b dev phy
~ sleep 1; for a in 192.0.2.2 192.0.2.3 fd00::2; do ovs-appctl tnl/neigh/set phy $a 02:00:00:00:00:0b; done
~ printf '%s\n' 'ovs-ofctl packet-out br0 "in_port=1,packet=0200000000020200000000010800454a00280000400009114b510a0000010a000002000100020014$(printf 00%.0s $(seq 20)),actions=$1"' > frame
# GRE: without a key, with one, be it 0, and with what else its header may have.
ovs-vsctl add-port br0 g1 -- set Interface g1 type=gre options:remote_ip=192.0.2.2 ofport_request=11
python3 wire.py sends 'sh frame output:11'
ovs-vsctl set Interface g1 options:key=0x89abcdef
python3 wire.py sends 'sh frame output:11'
ovs-vsctl set Interface g1 options:key=0
python3 wire.py sends 'sh frame output:11'
ovs-vsctl set Interface g1 options:key=flow
python3 wire.py sends 'sh frame set_field:0x123456789->tun_id,output:11'
python3 wire.py sends 'sh frame output:11'
ovs-vsctl remove Interface g1 options key -- set Interface g1 options:in_key=7
python3 wire.py sends 'sh frame set_field:5->tun_id,output:11'
ovs-vsctl set Interface g1 options:out_key=8 options:csum=true
python3 wire.py sends 'sh frame output:11'
ovs-vsctl set Interface g1 options:csum=false options:seq=true
python3 wire.py sends 'for n in 1 2 3; do sh frame output:11; done'
# Of a packet with a checksum and a sequence number other than the first, Open vSwitch's checksum is wrong.
ovs-vsctl set Interface g1 options:csum=true
python3 wire.py sends 'sh frame output:11' | cut -d' ' -f1-13
ovs-vsctl set Interface g1 options:csum=false options:seq=false options:tos=0xb8 options:ttl=9 options:df_default=false
python3 wire.py sends 'sh frame output:11' | cut -d' ' -f1-3,5-6,8-
ovs-vsctl set Interface g1 options:tos=inherit options:ttl=inherit options:df_default=true
python3 wire.py sends 'sh frame output:11'
ovs-vsctl set Interface g1 options:local_ip=192.0.2.9
python3 wire.py sends 'sh frame output:11'
# What there is none of for the type is ignored; what is wrong is not.
ovs-vsctl set Interface g1 options:dst_port=5 options:exts=gbp
ovs-vsctl get Interface g1 ofport error
ovs-vsctl clear Interface g1 options -- set Interface g1 options:key=5
ovs-vsctl get Interface g1 ofport error
ovs-vsctl clear Interface g1 options -- set Interface g1 options:remote_ip=192.0.2.2 options:key=7
# Over IPv6, and to ends that rules give.
ovs-vsctl add-port br0 g2 -- set Interface g2 type=gre options:remote_ip=fd00::2 options:key=7 options:csum=true ofport_request=12
python3 wire.py sends 'sh frame output:12'
ovs-vsctl set Interface g2 type=ip6gre
python3 wire.py sends 'sh frame output:12'
ovs-vsctl set Interface g2 type=gre options:key=flow options:remote_ip=flow options:csum=false
python3 wire.py sends 'sh frame set_field:9->tun_id,set_field:192.0.2.3->tun_dst,output:12'
python3 wire.py sends 'sh frame set_field:9->tun_id,set_field:fd00::2->tun_ipv6_dst,output:12'
python3 wire.py sends 'sh frame output:12'
ovs-appctl dpif/show | grep gre
ovs-appctl dpctl/show | grep 'gre'
# Packets that arrive. By key and other end; the tunnel's fields are those that rules see.
ovs-vsctl add-port br0 g3 -- set Interface g3 type=gre options:remote_ip=192.0.2.3 ofport_request=13
ovs-ofctl del-flows br0
ovs-ofctl add-flow br0 'in_port=11,tun_id=7,tun_src=192.0.2.2,tun_dst=192.0.2.1 actions=2'
ovs-ofctl add-flow br0 'in_port=12,tun_id=9,tun_src=192.0.2.2 actions=2'
ovs-ofctl add-flow br0 'in_port=12,tun_id=7,tun_ipv6_src=fd00::2 actions=2'
ovs-ofctl add-flow br0 'in_port=13,tun_id=0,tun_flags=-oam actions=2'
ovs-ofctl add-flow br0 'priority=0 actions=drop'
~ printf '%s\n' 'sleep 1.2; ovs-ofctl dump-flows br0 | sed -n "s/.*n_packets=\([0-9]*\),[^,]*, \(idle_age=[0-9]*, \)*\(.*\) actions.*/\1 \3/p" | sort' > flows
~ printf '%s\n' 'w=$1; r=$2; shift 2; for h; do python3 wire.py $w $r ${h}0200000000020200000000010800454a00280000400009114b510a0000010a000002000100020014$(printf 00%.0s $(seq 20)); done' > arrives
sh arrives gre 2 2000655800000007
sh flows
sh arrives gre 2 2000655800000009
sh arrives gre :2 2000655800000007
sh arrives gre 3 00006558
sh arrives gre 3 2000655800000000
sh flows
sh arrives gre 2 b00065580000000000000007000000ff
sh arrives gre 3 1000655800000005
sh arrives gre 3 8000655800000000
sh flows
# Of no port, with a wrong checksum, with flags that there are none of, of other versions, with IP inside, cut off.
sh arrives gre 4 2000655800000007
sh arrives gre 2 b00065581234000000000007000000ff
sh arrives gre 3 40006558 00016558 08006558 10006558
sh arrives gre 3 00000800 000086dd 000088cc 00000000
python3 wire.py gre 3 000065
python3 wire.py gre 3 20006558
sh flows
# ERSPAN. Of all GRE, Open vSwitch's datapath in user space gives packets to one type of ports; and its number is one for all ports.
ovs-vsctl del-port g1 -- del-port g2 -- del-port g3
ovs-vsctl add-port br0 e1 -- set Interface e1 type=erspan options:remote_ip=192.0.2.2 options:key=5 options:erspan_ver=1 options:erspan_idx=abcde ofport_request=31
python3 wire.py sends 'for n in 1 2; do sh frame output:31; done'
ovs-vsctl set Interface e1 options:erspan_idx=0x7 options:ttl=9 options:tos=inherit
python3 wire.py sends 'sh frame output:31' | cut -d' ' -f1-13,16-
ovs-appctl dpif/show | grep erspan
ovs-vsctl clear Interface e1 options -- set Interface e1 options:remote_ip=fd00::2 options:key=1023 options:erspan_ver=2 options:erspan_dir=1 options:erspan_hwid=3f type=ip6erspan
# Without the time.
python3 wire.py sends 'sh frame output:31' | cut -d' ' -f1-27,30-
# Without the number, which Open vSwitch takes before it frees the former one's.
ovs-appctl dpif/show | grep erspan | cut -d: -f2-
ovs-vsctl clear Interface e1 options -- set Interface e1 type=erspan options:remote_ip=flow options:key=flow options:erspan_ver=flow
python3 wire.py sends 'sh frame set_field:9->tun_id,set_field:192.0.2.2->tun_dst,set_field:1->tun_erspan_ver,set_field:0xfedcb->tun_erspan_idx,output:31' | cut -d' ' -f1-13,16-
python3 wire.py sends 'sh frame set_field:9->tun_id,set_field:192.0.2.2->tun_dst,set_field:2->tun_erspan_ver,set_field:1->tun_erspan_dir,set_field:9->tun_erspan_hwid,output:31' | cut -d' ' -f1-13,16-17,20-
python3 wire.py sends 'sh frame set_field:9->tun_id,set_field:192.0.2.2->tun_dst,output:31'
ovs-appctl dpif/show | grep erspan
ovs-appctl dpctl/show | grep 'erspan'
ovs-ofctl del-flows br0
ovs-ofctl add-flow br0 'in_port=31,tun_id=5,tun_src=192.0.2.2,tun_erspan_ver=1,tun_erspan_idx=0xabcde actions=2'
ovs-ofctl add-flow br0 'in_port=31,tun_id=6,tun_erspan_ver=2,tun_erspan_dir=1,tun_erspan_hwid=0x2a actions=2'
ovs-ofctl add-flow br0 'priority=0 actions=drop'
sh arrives gre 2 100088be0000000110000005000abcde
sh arrives gre 3 100088be0000000210000005000abcde
sh arrives gre :2 100022eb00000001200000060102030400008000 100022eb000000012000000601020304000082a8
sh flows
# Without a sequence number, with a checksum, of other versions, cut off.
sh arrives gre 2 900088be000000000000000110000005000abcde 100088be0000000130000005000abcde
python3 wire.py gre 2 100088be00000001100000
python3 wire.py gre 2 100022eb00000001200000
sh flows
ovs-vsctl del-port e1
# VXLAN on two ports at once. The source port is a hash with a secret, and the checksum is over it.
ovs-vsctl add-port br0 v1 -- set Interface v1 type=vxlan options:remote_ip=192.0.2.2 options:key=7 ofport_request=21
ovs-vsctl add-port br0 v2 -- set Interface v2 type=vxlan options:remote_ip=192.0.2.2 options:key=7 options:dst_port=8472 ofport_request=22
ovs-vsctl get Interface v1 ofport error -- get Interface v2 ofport error
python3 wire.py sends 'sh frame output:21,output:22' | cut -d' ' -f1-11,13-
ovs-appctl dpctl/show | grep vxlan
ovs-ofctl add-flow br0 'in_port=21,tun_id=7 actions=2'
ovs-ofctl add-flow br0 'in_port=22,tun_id=7 actions=2'
sh arrives 4789 2 0800000000000700
sh arrives 8472 2 0800000000000700 0800000000000700 0800000000000800
sh flows
ovs-vsctl del-br br0 -- del-br phy
