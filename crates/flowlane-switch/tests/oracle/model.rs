//! The pipeline as OpenFlow 1.3.5 and ovs-actions(7) describe it, for one packet at a time.
//!
//! It shares nothing with the product but rules as data: the packet is read from its bytes again before every
//! match and every action ([`reading`]), fields and checksums have their places here ([`writing`]). There are
//! no caches, no masks and no keys.

mod reading;
mod routes;
mod writing;

use std::collections::BTreeMap;

use flowlane::packet::Field;
use flowlane::rule::{Action, Command, FlowMod, Match, Rule};

use reading::{Reading, TAGS_MAX};
pub(crate) use routes::{Route, Routes};

/// Frames with the ports that they were sent to, in order.
pub(crate) type Frames = Vec<(u32, Vec<u8>)>;

/// The port number of the controller.
pub(crate) const CONTROLLER: u32 = u32::MAX;

/// The treatment of packets that no rule of a table matches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Miss {
    Drop,
    Controller,
    Continue,
}

/// A kind of table.
#[derive(Clone, Debug)]
pub(crate) enum Kind {
    /// A table of rules.
    Rules(Miss),
    Routes(Routes),
}

/// A table with its counters.
struct Table {
    kind: Kind,
    /// Its rules with their packets, in the order in which they were added.
    rules: Vec<(Rule, u64)>,
    /// Packets of its next hops.
    hops: Vec<u64>,
    missed: u64,
}

/// The counters.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Counters {
    /// Packets of each table's rules, in the order in which they were added, or of its next hops; and its misses.
    pub(crate) tables: BTreeMap<u8, (Vec<u64>, u64)>,
    /// Packets found malformed, on arrival or when parsed again.
    pub(crate) malformed: u64,
    /// Packets that met no output.
    pub(crate) by_rule: u64,
    pub(crate) ttl_expired: u64,
    /// Outputs to ports that do not exist.
    pub(crate) no_port: u64,
}

/// The switch.
pub(crate) struct Model {
    tables: BTreeMap<u8, Table>,
    /// The ports, in order.
    ports: Vec<u32>,
    pub(crate) forward_malformed: bool,
    counters: Counters,
    /// The packets of removed rules.
    pub(crate) gone: Vec<u64>,
}

/// A packet in flight.
struct Packet {
    bytes: Vec<u8>,
    in_port: u32,
    /// Fields in no header: registers, metadata, mark.
    outside: BTreeMap<Field, u128>,
    /// The headers have changed and must be parsed again.
    stale: bool,
    /// A label was popped where there was none.
    popped_nothing: bool,
    /// Tags behind which headers are read: one more for each that a rule has pushed since the packet was parsed.
    tags_max: usize,
    sent: Frames,
    /// Whether an output was met, even one to the ingress port.
    gone: bool,
}

/// Why a packet is not processed further.
enum Stop {
    Malformed,
    Expired,
    /// The standards do not say what happens.
    Undecided(&'static str),
}

impl Model {
    pub(crate) fn new(kinds: &[Kind], ports: &[u32]) -> Self {
        let table = |kind: &Kind| {
            let hops = if let Kind::Routes(routes) = kind { routes.hops.len() } else { 0 };
            Table { kind: kind.clone(), rules: Vec::new(), hops: vec![0; hops], missed: 0 }
        };
        let tables = (0..).zip(kinds.iter().map(table)).collect();
        Self {
            tables,
            ports: ports.to_vec(),
            forward_malformed: false,
            counters: Counters::default(),
            gone: Vec::new(),
        }
    }

    /// Adds a rule, or sets the actions of that with its priority and match (OpenFlow 1.3.5 §6.4).
    pub(crate) fn add(&mut self, rule: &Rule) {
        let rules = &mut self.tables.get_mut(&rule.table).expect("the rule's table").rules;
        let same = |old: &&mut (Rule, u64)| old.0.priority == rule.priority && old.0.matches == rule.matches;
        match rules.iter_mut().find(same) {
            Some(old) => old.0.actions.clone_from(&rule.actions),
            None => rules.push((rule.clone(), 0)),
        }
    }

    /// Applies a flow-mod to one rule, if it exists (OpenFlow 1.3.5 §6.4).
    pub(crate) fn change(&mut self, change: &FlowMod) {
        let wanted = &change.rule;
        if change.command == Command::Add {
            return self.add(wanted);
        }
        let rules = &mut self.tables.get_mut(&wanted.table).expect("the rule's table").rules;
        let same = |old: &(Rule, u64)| old.0.priority == wanted.priority && old.0.matches == wanted.matches;
        let Some(at) = rules.iter().position(same) else { return };
        match change.command {
            Command::ModifyStrict => rules[at].0.actions.clone_from(&wanted.actions),
            Command::DeleteStrict => self.gone.push(rules.remove(at).1),
            other => panic!("{other:?} is not for one rule"),
        }
    }

    pub(crate) fn counters(&self) -> Counters {
        let mut out = self.counters.clone();
        for (&number, table) in &self.tables {
            let rules = table.rules.iter().map(|(_, packets)| *packets);
            let packets = rules.chain(table.hops.iter().copied()).collect();
            out.tables.insert(number, (packets, table.missed));
        }
        out
    }

    /// Switches a packet; returns the frames sent, in order.
    ///
    /// # Errors
    /// If the standards leave the result open, the reason; nothing has been counted then.
    pub(crate) fn switch(&mut self, in_port: u32, bytes: &[u8]) -> Result<Frames, &'static str> {
        let before = self.counters();
        let outside = BTreeMap::from([(Field::InPort, in_port.into())]);
        let (bytes, sent) = (bytes.to_vec(), Vec::new());
        let mut packet = Packet {
            bytes,
            in_port,
            outside,
            stale: true,
            popped_nothing: false,
            tags_max: TAGS_MAX,
            sent,
            gone: false,
        };
        match self.walk(&mut packet) {
            Ok(()) => self.counters.by_rule += u64::from(!packet.gone),
            Err(Stop::Malformed) => {}
            Err(Stop::Expired) => self.counters.ttl_expired += 1,
            Err(Stop::Undecided(why)) => {
                self.restore(before);
                return Err(why);
            }
        }
        Ok(packet.sent)
    }

    fn restore(&mut self, counters: Counters) {
        for (number, (packets, missed)) in &counters.tables {
            let table = self.tables.get_mut(number).expect("a table stays");
            table.missed = *missed;
            let counters = table.rules.iter_mut().map(|rule| &mut rule.1).chain(&mut table.hops);
            counters.zip(packets).for_each(|(counter, packets)| *counter = *packets);
        }
        self.counters = Counters { tables: BTreeMap::new(), ..counters };
    }

    fn walk(&mut self, packet: &mut Packet) -> Result<(), Stop> {
        let mut at = Some(0);
        while let Some(number) = at {
            self.parse(packet)?;
            (packet.tags_max, packet.popped_nothing) = (TAGS_MAX, false);
            let Some(table) = self.tables.get_mut(&number) else { return Ok(()) };
            let found = table.find(packet);
            let next = match &table.kind {
                Kind::Rules(Miss::Continue) => Some(number + 1),
                Kind::Rules(Miss::Controller) | Kind::Routes(Routes { to_controller: true, .. }) => {
                    if found.is_none() {
                        packet.send(CONTROLLER);
                    }
                    None
                }
                _ => None,
            };
            at = match found {
                Some(actions) => self.act_all(packet, &actions)?,
                None => next,
            };
        }
        Ok(())
    }

    /// Executes the actions of a rule or next hop; returns the next table.
    fn act_all(&mut self, packet: &mut Packet, actions: &[Action]) -> Result<Option<u8>, Stop> {
        for action in actions {
            if let Action::Goto(next) = *action {
                return Ok(Some(next));
            }
            self.act(packet, action)?;
        }
        Ok(None)
    }

    /// Parses the packet if its headers have changed since it was last parsed.
    fn parse(&mut self, packet: &mut Packet) -> Result<(), Stop> {
        let popped_nothing = std::mem::take(&mut packet.popped_nothing);
        if !std::mem::take(&mut packet.stale) {
            return match popped_nothing && packet.tags_max > TAGS_MAX {
                true => {
                    Err(Stop::Undecided("a label that is not there is popped among tags that were pushed"))
                }
                false => Ok(()),
            };
        }
        packet.tags_max = TAGS_MAX;
        if packet.reading().fault.is_some() {
            self.counters.malformed += 1;
            if !self.forward_malformed {
                return Err(Stop::Malformed);
            }
        }
        Ok(())
    }

    fn act(&mut self, packet: &mut Packet, action: &Action) -> Result<(), Stop> {
        if looks_at_headers(action) {
            self.parse(packet)?;
        }
        match *action {
            // Frames do not show their queue.
            Action::SetQueue(_) | Action::PopQueue => {}
            Action::Enqueue { port: flowlane::rule::action::PortNo::IN_PORT, .. } => {
                packet.send(packet.in_port)
            }
            Action::Output(port) | Action::Enqueue { port, .. } => {
                packet.gone = true;
                if !self.ports.contains(&port.0) {
                    self.counters.no_port += 1;
                } else if port.0 != packet.in_port {
                    packet.send(port.0);
                }
            }
            Action::InPort => packet.send(packet.in_port),
            Action::Flood | Action::All => {
                packet.gone = true;
                let from = packet.in_port;
                let others = self.ports.iter().filter(|&&port| port != from);
                others.for_each(|&port| packet.send(port));
            }
            Action::Controller(ref controller) => {
                let max_len = controller.max_len;
                packet.send(CONTROLLER);
                let whole = max_len == u16::MAX;
                let sent = packet.sent.last_mut().expect("sent just now");
                sent.1.truncate(if whole { usize::MAX } else { max_len.into() });
            }
            Action::Count(_) => {}
            Action::PushVlan(_)
            | Action::PopVlan
            | Action::PushMpls(_)
            | Action::PopMpls(_)
            | Action::SetField { .. }
            | Action::DeleteField(_)
            | Action::Move { .. }
            | Action::DecTtl(_)
            | Action::DecMplsTtl => return packet.change(action),
            _ => panic!("{action:?} is not in the model"),
        }
        Ok(())
    }
}

impl Table {
    /// Returns the actions for a packet, and counts it.
    fn find(&mut self, packet: &Packet) -> Option<Vec<Action>> {
        let reading = packet.reading();
        if let Kind::Routes(routes) = &self.kind {
            let hop = routes.hop(&packet.bytes, &reading);
            *hop.map_or(&mut self.missed, |hop| &mut self.hops[hop]) += 1;
            return hop.map(|hop| routes.hops[hop].clone());
        }
        let mut best: Option<&mut (Rule, u64)> = None;
        for rule in &mut self.rules {
            let better = best.as_ref().is_none_or(|best| rule.0.priority > best.0.priority);
            if better && packet.matches(&reading, &rule.0.matches) {
                best = Some(rule);
            }
        }
        let Some((rule, packets)) = best else {
            self.missed += 1;
            return None;
        };
        *packets += 1;
        Some(rule.actions.clone())
    }
}

/// Returns whether an action needs header offsets.
fn looks_at_headers(action: &Action) -> bool {
    match action {
        Action::SetField { field, .. } => {
            !is_outside(*field) && !matches!(field, Field::EthSrc | Field::EthDst)
        }
        Action::PopVlan
        | Action::PushMpls(_)
        | Action::PopMpls(_)
        | Action::Move { .. }
        | Action::DecTtl(_)
        | Action::DecMplsTtl => true,
        _ => false,
    }
}

/// Returns whether a field is in no header.
fn is_outside(field: Field) -> bool {
    matches!(field, Field::Metadata | Field::PktMark | Field::TunMetadata0 | Field::TunMetadata6)
        || (Field::Reg0..=Field::XxReg3).contains(&field)
}

/// The bit that says that a packet has an option of tunnels.
fn presence(field: Field) -> Option<u128> {
    match field {
        Field::TunMetadata0 => Some(1),
        Field::TunMetadata6 => Some(1 << 6),
        _ => None,
    }
}

impl Packet {
    fn reading(&self) -> Reading {
        Reading::of(&self.bytes, self.tags_max)
    }

    fn send(&mut self, port: u32) {
        self.gone = true;
        self.sent.push((port, self.bytes.clone()));
    }

    /// Returns a field's value, 0 if the packet has no such field.
    fn get(&self, reading: &Reading, field: Field) -> u128 {
        match self.outside.get(&field) {
            Some(&value) => value,
            None => writing::get(&self.bytes, reading, field).unwrap_or(0),
        }
    }

    fn set(&mut self, field: Field, value: u128, mask: u128) -> Result<(), Stop> {
        if is_outside(field) {
            let old = self.outside.entry(field).or_default();
            *old = *old & !mask | value & mask;
            if let Some(bit) = presence(field) {
                *self.outside.entry(Field::TunMetadataPresent).or_default() |= bit;
            }
            return Ok(());
        }
        if field == Field::VlanTci && mask & 0x1000 == 0 && self.reading().tags.is_empty() {
            return Err(Stop::Undecided("bits of a tag that is not there are set"));
        }
        if field == Field::VlanTci && value & mask != 0 && mask & 0x1000 != 0 && value & 0x1000 == 0 {
            return Err(Stop::Undecided("a tag is set without the bit that says that there is one"));
        }
        let before = self.reading();
        writing::set(&mut self.bytes, &before, field, value, mask);
        let after = self.reading();
        self.stale |= after.tags.len() < before.tags.len();
        match after.neighbour.target == before.neighbour.target && after.fault == before.fault {
            false if field == Field::IcmpType || field == Field::IcmpCode => {
                Err(Stop::Undecided("another ICMPv6 message becomes neighbour discovery, or this another"))
            }
            _ => Ok(()),
        }
    }

    fn change(&mut self, action: &Action) -> Result<(), Stop> {
        let reading = self.reading();
        match *action {
            Action::PushVlan(tpid) => {
                writing::push_vlan(&mut self.bytes, &reading, tpid);
                self.tags_max += 1;
            }
            Action::PopVlan => {
                writing::pop_vlan(&mut self.bytes, &reading);
                self.stale = true;
            }
            Action::PushMpls(ether_type) => {
                if !writing::push_mpls(&mut self.bytes, &reading, ether_type) {
                    return Err(Stop::Undecided("a label is pushed behind more tags than are parsed"));
                }
                self.stale = true;
            }
            Action::PopMpls(ether_type) => {
                writing::pop_mpls(&mut self.bytes, &reading, ether_type);
                self.stale |= !reading.labels.is_empty();
                self.popped_nothing = reading.labels.is_empty();
            }
            Action::SetField { protocol: Some(protocol), .. }
                if self.get(&reading, Field::NwProto) != protocol.into() => {}
            Action::SetField { field, value, mask, .. } => return self.set(field, value, mask),
            Action::DeleteField(field) => {
                let bit = presence(field).expect("only options are deleted");
                *self.outside.entry(Field::TunMetadataPresent).or_default() &= !bit;
            }
            Action::Move { from, to } => {
                let read = from.field();
                let has = |field| writing::get(&self.bytes, &reading, field).is_some();
                if SHARED.iter().any(|&(a, b)| a == read && has(b) || b == read && has(a)) && !has(read) {
                    return Err(Stop::Undecided("a field is moved that is another in this packet"));
                }
                let value = self.get(&reading, read) >> from.first_bit();
                let ones = u128::MAX >> (128 - u32::from(to.bits()));
                return self.set(to.field(), (value & ones) << to.first_bit(), ones << to.first_bit());
            }
            Action::DecTtl(_) | Action::DecMplsTtl => {
                let field = if *action == Action::dec_ttl() { Field::NwTtl } else { Field::MplsTtl };
                if !writing::decrement(&mut self.bytes, &reading, field) {
                    self.send(CONTROLLER);
                    return Err(Stop::Expired);
                }
            }
            _ => panic!("{action:?} changes no header"),
        }
        Ok(())
    }

    fn matches(&self, reading: &Reading, wanted: &Match) -> bool {
        let agrees = |&field: &Field| {
            let (value, mask) = wanted.get(field);
            (self.get(reading, field) ^ value) & mask == 0
        };
        // Some fields share their place in a rule, since no packet has both; an absent one reads as 0.
        let shared = |a: Field, b: Field| {
            let (value, mask) = wanted.get(a);
            (self.get(reading, a) | self.get(reading, b)) & mask == value
        };
        let port = |field| self.get(reading, field) as u16;
        MATCHED.iter().all(agrees)
            && SHARED.iter().all(|&(a, b)| shared(a, b))
            && wanted.tp_src_range().is_none_or(|range| range.contains(port(Field::TpSrc)))
            && wanted.tp_dst_range().is_none_or(|range| range.contains(port(Field::TpDst)))
    }
}

/// Fields with their own place in a rule's match.
const MATCHED: [Field; 43] = [
    Field::InPort,
    Field::Metadata,
    Field::PktMark,
    Field::TunMetadata0,
    Field::TunMetadata6,
    Field::TunMetadataPresent,
    Field::Reg0,
    Field::Reg1,
    Field::Reg9,
    Field::Reg15,
    Field::EthDst,
    Field::EthSrc,
    Field::EthType,
    Field::VlanTci,
    Field::VlanTpid,
    Field::VlanTci1,
    Field::MplsLabel,
    Field::MplsTc,
    Field::MplsBos,
    Field::MplsTtl,
    Field::MplsLse1,
    Field::MplsLse2,
    Field::Ipv6Src,
    Field::Ipv6Dst,
    Field::Ipv6Label,
    Field::TpSrc,
    Field::TpDst,
    Field::NwProto,
    Field::IpDscp,
    Field::IpEcn,
    Field::NwTtl,
    Field::IpFrag,
    Field::TcpFlags,
    Field::IcmpType,
    Field::IcmpCode,
    Field::ArpOp,
    Field::NdTarget,
    Field::NdReserved,
    Field::NdOptionsType,
    Field::TunId,
    Field::TunSrc,
    Field::TunDst,
    Field::TunFlags,
];

/// Fields that share their place in a rule's match.
const SHARED: [(Field, Field); 4] = [
    (Field::Ipv4Src, Field::ArpSpa),
    (Field::Ipv4Dst, Field::ArpTpa),
    (Field::NdSll, Field::ArpSha),
    (Field::NdTll, Field::ArpTha),
];
