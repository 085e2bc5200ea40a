//! The actions as documents describe them. The reader suggests their names, and a test reads every example.

/// An action: its names, forms and meaning.
#[derive(Debug)]
#[non_exhaustive]
pub struct ActionInfo {
    /// The names, the usual one first.
    pub names: &'static [&'static str],
    /// How it is written: words in capitals are filled in, parts in brackets may be left out.
    pub form: &'static str,
    /// Its effect.
    pub about: &'static str,
    /// A rule with it.
    pub example: &'static str,
}

const fn action(
    names: &'static [&'static str],
    form: &'static str,
    about: &'static str,
    example: &'static str,
) -> ActionInfo {
    ActionInfo { names, form, about, example }
}

/// The actions that rules may have, in groups, each with a heading. Those of ovs-actions(7), `count` and `encap:N`.
pub static ACTIONS: &[(&str, &[ActionInfo])] = &[
    ("Sending", SENDING),
    ("Headers", HEADERS),
    ("Fields", FIELDS),
    ("Tables and lists of actions", TABLES),
    ("Connections and learning", STATE),
    ("Rates and counts", RATES),
];

static SENDING: &[ActionInfo] = &[
    action(
        &["output"],
        "output:PORT, PORT",
        "Sends the packet to a port, by name or number; not to the one that it came from.",
        "in_port=1,actions=output:2",
    ),
    action(
        &["output"],
        "output:FIELD[FIRST..LAST]",
        "Sends the packet to the port whose number a field holds.",
        "actions=output:reg0[0..15]",
    ),
    action(
        &["output"],
        "output(port=PORT,max_len=BYTES)",
        "Sends the first bytes of the packet, at least 14.",
        "actions=output(port=2,max_len=128)",
    ),
    action(
        &["in_port"],
        "in_port",
        "Sends the packet back to the port that it came from.",
        "icmp,actions=in_port",
    ),
    action(
        &["normal"],
        "normal",
        "Learns the sender's MAC address and sends the packet where its receiver's was learned, as a learning switch.",
        "priority=0,actions=normal",
    ),
    action(
        &["flood"],
        "flood",
        "Sends the packet to all ports but the one that it came from and those that are set not to flood.",
        "arp,actions=flood",
    ),
    action(
        &["all"],
        "all",
        "Sends the packet to all ports but the one that it came from.",
        "arp,actions=all",
    ),
    action(
        &["local"],
        "local",
        "Sends the packet to the port of the switch's own host.",
        "tcp,tp_dst=22,actions=local",
    ),
    action(
        &["controller"],
        "controller[:MAX_LEN], controller(KEY=VALUE,…)",
        "Sends the packet to controllers: `max_len` bytes of it, with `reason`, `id`, `userdata`, `meter_id`; `pause` lets the controller \
         have it go on.",
        "actions=controller(max_len=128,reason=action)",
    ),
    action(
        &["enqueue"],
        "enqueue:PORT:QUEUE",
        "Sends the packet to a port through one of its queues.",
        "ip,actions=enqueue:2:1",
    ),
    action(&["drop"], "drop", "Drops the packet: the only action of its rule.", "udp,tp_dst=53,actions=drop"),
    action(
        &["group"],
        "group:N",
        "Gives the packet to a group, which copies it or chooses one of its buckets.",
        "ip,actions=group:7",
    ),
    action(
        &["bundle"],
        "bundle(FIELDS,BASIS,ALGORITHM,ofport,members:PORT,…)",
        "Sends the packet to one of several ports that are up: the first (`active_backup`), or by a hash of its fields (`hrw`).",
        "actions=bundle(symmetric_l4,0,hrw,ofport,members:2,3)",
    ),
    action(
        &["sample"],
        "sample(probability=N[,collector_set_id=N][,obs_domain_id=N][,obs_point_id=N][,sampling_port=PORT][,ingress|egress])",
        "Sends a sample of packets to the controller's port: N of 65,535.",
        "ip,actions=sample(probability=655),normal",
    ),
];

static HEADERS: &[ActionInfo] = &[
    action(
        &["push_vlan"],
        "push_vlan:ETHERTYPE",
        "Puts a VLAN tag in front, 0x8100 or 0x88a8; its number is set afterwards.",
        "ip,actions=push_vlan:0x8100,set_field:10->vlan_vid,output:2",
    ),
    action(
        &["pop_vlan", "strip_vlan"],
        "pop_vlan",
        "Takes the outermost VLAN tag off.",
        "dl_vlan=10,actions=pop_vlan,output:2",
    ),
    action(
        &["push_mpls"],
        "push_mpls:ETHERTYPE",
        "Puts an MPLS label in front, 0x8847 or 0x8848.",
        "ip,actions=push_mpls:0x8847,set_mpls_label:16,output:2",
    ),
    action(
        &["pop_mpls"],
        "pop_mpls:ETHERTYPE",
        "Takes the outermost MPLS label off; what follows has this EtherType.",
        "mpls,actions=pop_mpls:0x0800,output:2",
    ),
    action(
        &["encap"],
        "encap:N",
        "Puts the packet into tunnel N of the configuration.",
        "ip,actions=encap:1,output:2",
    ),
    action(
        &["encap"],
        "encap(HEADER)",
        "Puts a header in front: `ethernet`, `mpls`, `mpls_mc`, `nsh(md_type=1)` or `nsh(md_type=2,tlv(CLASS,TYPE,0xBYTES))`.",
        "ip,actions=encap(nsh(md_type=1)),set_field:0x1234->nsh_spi,encap(ethernet),output:2",
    ),
    action(
        &["decap"],
        "decap[(packet_type(ns=SPACE,type=TYPE))]",
        "Takes the outermost header off: Ethernet, MPLS or NSH.",
        "dl_type=0x894f,actions=decap(),decap(),output:2",
    ),
    action(
        &["dec_ttl"],
        "dec_ttl[(ID,…)]",
        "Lowers the TTL or hop limit by one; a packet whose TTL would be 0 goes no further, but to the controllers with these numbers.",
        "ip,actions=dec_ttl,output:2",
    ),
    action(
        &["dec_mpls_ttl"],
        "dec_mpls_ttl",
        "Lowers the TTL of the outermost MPLS label.",
        "mpls,actions=dec_mpls_ttl,output:2",
    ),
    action(
        &["dec_nsh_ttl"],
        "dec_nsh_ttl",
        "Lowers the TTL of the service header.",
        "dl_type=0x894f,actions=dec_nsh_ttl,output:2",
    ),
];

static FIELDS: &[ActionInfo] = &[
    action(
        &["set_field"],
        "set_field:VALUE[/MASK]->FIELD",
        "Sets a field, or its bits within a mask. Checksums follow.",
        "tcp,actions=set_field:192.0.2.1->nw_dst,output:2",
    ),
    action(
        &["load"],
        "load:VALUE->FIELD[FIRST..LAST]",
        "Sets a part of a field to a number.",
        "actions=load:0x7->NXM_NX_REG0[0..3],resubmit(,1)",
    ),
    action(
        &["move"],
        "move:FIELD[FIRST..LAST]->FIELD[FIRST..LAST]",
        "Copies a field or a part of one to another of the same width.",
        "ip,actions=move:nw_src->reg1,resubmit(,1)",
    ),
    action(
        &["push"],
        "push:FIELD[FIRST..LAST]",
        "Puts a field or a part of one on the packet's stack.",
        "actions=push:reg0,resubmit(,1),pop:reg0,resubmit(,2)",
    ),
    action(
        &["pop"],
        "pop:FIELD[FIRST..LAST]",
        "Takes the topmost value off the packet's stack into a field.",
        "actions=push:reg0,resubmit(,1),pop:reg0,resubmit(,2)",
    ),
    action(
        &["mod_dl_src"],
        "mod_dl_src:MAC",
        "Sets the source MAC address.",
        "actions=mod_dl_src:02:00:00:00:00:01,output:2",
    ),
    action(
        &["mod_dl_dst"],
        "mod_dl_dst:MAC",
        "Sets the destination MAC address.",
        "actions=mod_dl_dst:02:00:00:00:00:02,output:2",
    ),
    action(
        &["mod_nw_src"],
        "mod_nw_src:ADDRESS",
        "Sets the source address of IPv4.",
        "ip,actions=mod_nw_src:192.0.2.1,output:2",
    ),
    action(
        &["mod_nw_dst"],
        "mod_nw_dst:ADDRESS",
        "Sets the destination address of IPv4.",
        "ip,actions=mod_nw_dst:192.0.2.2,output:2",
    ),
    action(
        &["mod_nw_tos"],
        "mod_nw_tos:OCTET",
        "Sets the DSCP: the octet's upper six bits, of which the lower two are 0.",
        "ip,actions=mod_nw_tos:184,output:2",
    ),
    action(&["mod_nw_ecn"], "mod_nw_ecn:N", "Sets the ECN bits, 0 to 3.", "ip,actions=mod_nw_ecn:3,output:2"),
    action(
        &["mod_nw_ttl"],
        "mod_nw_ttl:N",
        "Sets the TTL or hop limit.",
        "ip,actions=mod_nw_ttl:64,output:2",
    ),
    action(
        &["mod_tp_src"],
        "mod_tp_src:PORT",
        "Sets the source port of TCP, UDP or SCTP.",
        "tcp,actions=mod_tp_src:8080,output:2",
    ),
    action(
        &["mod_tp_dst"],
        "mod_tp_dst:PORT",
        "Sets the destination port.",
        "tcp,actions=mod_tp_dst:80,output:2",
    ),
    action(
        &["mod_vlan_vid", "set_vlan_vid"],
        "mod_vlan_vid:VID",
        "Sets the VLAN, and puts a tag in front where there is none.",
        "actions=mod_vlan_vid:10,output:2",
    ),
    action(
        &["mod_vlan_pcp", "set_vlan_pcp"],
        "mod_vlan_pcp:N",
        "Sets the priority of the VLAN tag, 0 to 7, and puts one in front where there is none.",
        "actions=mod_vlan_pcp:5,output:2",
    ),
    action(
        &["set_mpls_label"],
        "set_mpls_label:N",
        "Sets the outermost MPLS label.",
        "mpls,actions=set_mpls_label:100,output:2",
    ),
    action(
        &["set_mpls_tc"],
        "set_mpls_tc:N",
        "Sets its traffic class, 0 to 7.",
        "mpls,actions=set_mpls_tc:5,output:2",
    ),
    action(&["set_mpls_ttl"], "set_mpls_ttl:N", "Sets its TTL.", "mpls,actions=set_mpls_ttl:64,output:2"),
    action(
        &["set_tunnel", "set_tunnel64"],
        "set_tunnel:ID",
        "Sets the key of the tunnel that the packet leaves by.",
        "actions=set_tunnel:42,output:2",
    ),
    action(
        &["delete_field"],
        "delete_field:FIELD",
        "Takes an option of the tunnel out.",
        "actions=delete_field:tun_metadata0,output:2",
    ),
    action(
        &["check_pkt_larger"],
        "check_pkt_larger(BYTES)->FIELD[BIT]",
        "Sets a bit: whether the packet is longer than this.",
        "actions=check_pkt_larger(1500)->reg0[0],resubmit(,1)",
    ),
    action(
        &["multipath"],
        "multipath(FIELDS,BASIS,ALGORITHM,LINKS,ARGUMENT,FIELD[FIRST..LAST])",
        "Chooses one of LINKS numbers by a hash of the packet, and sets a field to it.",
        "ip,actions=multipath(symmetric_l4,0,hrw,4,0,reg0[0..1]),resubmit(,1)",
    ),
    action(
        &["bundle_load"],
        "bundle_load(FIELDS,BASIS,ALGORITHM,ofport,FIELD[FIRST..LAST],members:PORT,…)",
        "Chooses a port as `bundle` does, and sets a field to its number.",
        "actions=bundle_load(symmetric_l4,0,hrw,ofport,reg0[0..15],members:2,3),resubmit(,1)",
    ),
];

static TABLES: &[ActionInfo] = &[
    action(
        &["resubmit"],
        "resubmit([PORT],[TABLE][,ct])",
        "Looks the packet up in a table, as if it came from a port, and goes on with the next action afterwards; `ct`: as it was before \
         its addresses were translated.",
        "actions=resubmit(,1)",
    ),
    action(
        &["goto_table"],
        "goto_table:N",
        "Goes on in a later table: the last action.",
        "table=0,actions=goto_table:1",
    ),
    action(
        &["write_actions"],
        "write_actions(ACTION,…)",
        "Adds actions to the set that is executed when the packet leaves the last table.",
        "table=0,actions=write_actions(output:2),goto_table:1",
    ),
    action(&["clear_actions"], "clear_actions", "Empties that set.", "table=1,actions=clear_actions"),
    action(
        &["write_metadata"],
        "write_metadata:VALUE[/MASK]",
        "Sets the metadata that later tables may match.",
        "table=0,actions=write_metadata:0x1/0xff,goto_table:1",
    ),
    action(
        &["clone"],
        "clone(ACTION,…)",
        "Executes actions on a copy of the packet.",
        "actions=clone(set_field:9->in_port,output:3),output:2",
    ),
    action(
        &["conjunction"],
        "conjunction(ID,K/N)",
        "The rule is the K-th of N parts: where a rule of each part matches, the rule with `conj_id=ID` does.",
        "ip,nw_src=192.0.2.1,actions=conjunction(7,1/2)",
    ),
    action(
        &["exit"],
        "exit",
        "Ends: later actions, of calling tables, too, are not executed.",
        "actions=output:2,exit",
    ),
];

static STATE: &[ActionInfo] = &[
    action(
        &["ct"],
        "ct([commit][,force][,zone=ZONE][,table=N][,nat[(…)]][,alg=ftp|tftp][,exec(ACTION,…)])",
        "Finds the packet's connection, or begins one (`commit`). With `table`, the packet is looked up there with the state that was \
         found, `ct_state`; `exec` sets the connection's `ct_mark` and `ct_label`.",
        "table=0,ct_state=-trk,ip,actions=ct(table=1,zone=1)",
    ),
    action(
        &["nat"],
        "nat(src=ADDRESS[-ADDRESS][:PORT-PORT]), nat(dst=…), nat",
        "In `ct`: translates the connection's addresses; alone, those of connections that have a translation.",
        "table=1,ct_state=+new+trk,ip,actions=ct(commit,zone=1,nat(src=192.0.2.1)),output:2",
    ),
    action(
        &["ct_clear"],
        "ct_clear",
        "Forgets the packet's connection: its fields are 0.",
        "ct_state=+trk,ip,actions=ct_clear,output:2",
    ),
    action(
        &["learn"],
        "learn([table=N][,priority=N][,idle_timeout=S][,hard_timeout=S][,…],SPEC,…)",
        "Adds a rule with matches (`FIELD`, `FIELD=VALUE`, `FIELD=FIELD`) and actions (`load:VALUE->FIELD`, `output:FIELD`) from the packet.",
        "table=0,actions=learn(table=1,idle_timeout=60,NXM_OF_ETH_DST[]=NXM_OF_ETH_SRC[],output:NXM_OF_IN_PORT[]),resubmit(,1)",
    ),
    action(
        &["fin_timeout"],
        "fin_timeout(idle_timeout=S[,hard_timeout=S])",
        "Shortens the rule's time-outs once a packet of TCP with FIN or RST matches.",
        "tcp,actions=fin_timeout(idle_timeout=10),output:2",
    ),
];

static RATES: &[ActionInfo] = &[
    action(
        &["meter"],
        "meter:N",
        "Drops or marks packets beyond the rate of a meter.",
        "ip,actions=meter:1,output:2",
    ),
    action(
        &["set_queue"],
        "set_queue:N",
        "Chooses the queue of the ports that the packet is sent to.",
        "ip,actions=set_queue:1,output:2",
    ),
    action(
        &["pop_queue"],
        "pop_queue",
        "Chooses the queue that was chosen before.",
        "ip,actions=set_queue:1,output:2,pop_queue,output:3",
    ),
    action(
        &["count"],
        "count:N",
        "Counts packets and bytes in a numbered counter.",
        "ip,actions=count:1,output:2",
    ),
    action(
        &["note"],
        "note:BYTES",
        "Does nothing: a remark, in hexadecimal.",
        "actions=note:01.02.03,output:2",
    ),
];

/// The names of all actions.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    ACTIONS.iter().flat_map(|(_, actions)| actions.iter()).flat_map(|action| action.names).copied()
}
