//! Actions as text, so that reading it gives the same action.

use std::fmt::{self, Formatter, Write};

use super::super::Action;
use super::super::action::{
    Bundle, ConnectionTracking, Controller, EncapsulateHeader, Learn, LearnSource, LearnSpec, MemberChoice,
    Multipath, Nat, PortNo, Sample, SampleDirection, Zone,
};
use super::actions::{REASONS, learned};
use super::known::{Known, Names, is_whole_port};
use super::print::{assignment, masked};
use crate::packet::FieldRef;
use crate::packet::fields::Form;

/// A list of arguments in parentheses.
struct Arguments<'a, 'b> {
    f: &'a mut Formatter<'b>,
    is_first: bool,
}

impl<'a, 'b> Arguments<'a, 'b> {
    fn of(f: &'a mut Formatter<'b>, name: &str) -> Result<Self, fmt::Error> {
        write!(f, "{name}(")?;
        Ok(Self { f, is_first: true })
    }

    fn add(&mut self, argument: impl fmt::Display) -> fmt::Result {
        if !std::mem::replace(&mut self.is_first, false) {
            self.f.write_char(',')?;
        }
        argument.fmt(self.f)
    }

    fn add_if(&mut self, condition: bool, argument: impl fmt::Display) -> fmt::Result {
        if condition { self.add(argument) } else { Ok(()) }
    }

    fn end(self) -> fmt::Result {
        self.f.write_char(')')
    }
}

/// Bytes in hexadecimal, with points between them.
fn bytes(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(".")
}

/// A port's number, or its name in OpenFlow.
fn port(port: PortNo) -> String {
    match port {
        PortNo::LOCAL => "LOCAL".to_owned(),
        PortNo::IN_PORT => "IN_PORT".to_owned(),
        PortNo(number) => number.to_string(),
    }
}

/// An action, with the names that fields have for the packets.
struct Named<'a>(&'a Action, &'a Known);

impl fmt::Display for Action {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        Named(self, &Known::default()).fmt(f)
    }
}

/// A list of actions for packets of which `known` is known; `drop` where there are none.
pub(super) fn list(actions: &[Action], known: &Known) -> String {
    if actions.is_empty() {
        return "drop".to_owned();
    }
    let mut known = known.clone();
    let one = |action: &Action| {
        let text = Named(action, &known).to_string();
        known.after(action);
        text
    };
    actions.iter().map(one).collect::<Vec<_>>().join(",")
}

/// Prints an output of a packet's first bytes.
fn print_part(f: &mut Formatter<'_>, port: &str, max_len: u32) -> fmt::Result {
    write!(f, "output(port={port},max_len={max_len})")
}

impl fmt::Display for Named<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self(action, known) = self;
        let names = known.names();
        let part = |part: &FieldRef| names.part(*part);
        // Without brackets, `in_port` is the port that the packet came from.
        let sent = |from: &FieldRef| if is_whole_port(*from) { "in_port[]".to_owned() } else { part(from) };
        match action {
            Action::Output(PortNo::LOCAL) => f.write_str("LOCAL"),
            Action::Output(to) => write!(f, "output:{}", to.0),
            // As Open vSwitch prints it.
            Action::OutputMaxLen { output, .. } => Named(output, known).fmt(f),
            Action::OutputTruncated { port: to, max_len } => print_part(f, &port(*to), *max_len),
            Action::OutputField { port, max_len: u16::MAX } => write!(f, "output:{}", sent(port)),
            Action::OutputField { port, max_len } => print_part(f, &sent(port), (*max_len).into()),
            Action::Enqueue { port: to, queue } => write!(f, "enqueue:{}:{queue}", port(*to)),
            Action::InPort => f.write_str("in_port"),
            Action::Flood => f.write_str("flood"),
            Action::All => f.write_str("all"),
            Action::Normal => f.write_str("normal"),
            Action::Controller(controller) => print_controller(f, controller),
            Action::Sample(sample) => print_sample(f, sample),
            Action::SetQueue(queue) => write!(f, "set_queue:{queue}"),
            Action::PopQueue => f.write_str("pop_queue"),
            Action::PushVlan(tpid) => write!(f, "push_vlan:{tpid:#06x}"),
            Action::PopVlan => f.write_str("pop_vlan"),
            Action::PushMpls(eth_type) => write!(f, "push_mpls:{eth_type:#06x}"),
            Action::PopMpls(eth_type) => write!(f, "pop_mpls:{eth_type:#06x}"),
            Action::SetField { field, value, mask, form, protocol } => {
                f.write_str(&assignment(field.info(), *value, *mask, *form, names.with_protocol(*protocol)))
            }
            Action::Move { from, to } => write!(f, "move:{}->{}", part(from), part(to)),
            Action::Push(from) => write!(f, "push:{}", part(from)),
            Action::Pop(to) => write!(f, "pop:{}", part(to)),
            Action::DeleteField(field) => write!(f, "delete_field:{}", field.info().name),
            Action::DecTtl(controllers) if controllers.is_empty() => f.write_str("dec_ttl"),
            Action::DecTtl(controllers) => print_dec_ttl(f, controllers),
            Action::DecMplsTtl => f.write_str("dec_mpls_ttl"),
            Action::DecNshTtl => f.write_str("dec_nsh_ttl"),
            Action::Meter(meter) => write!(f, "meter:{meter}"),
            Action::Count(counter) => write!(f, "count:{counter}"),
            Action::Encapsulate(tunnel) => write!(f, "encap:{tunnel}"),
            Action::EncapsulateHeader(header) => print_encapsulation(f, header),
            Action::Decapsulate(None) => f.write_str("decap()"),
            Action::Decapsulate(Some((space, kind))) => {
                write!(f, "decap(packet_type(ns={space},type={kind:#x}))")
            }
            Action::Clone(actions) => write!(f, "clone({})", list(actions, known)),
            Action::WriteActions(actions) => write!(f, "write_actions({})", list(actions, known)),
            Action::ClearActions => f.write_str("clear_actions"),
            Action::Resubmit { in_port, table, original } => print_resubmit(f, *in_port, *table, *original),
            Action::Group(group) => write!(f, "group:{group}"),
            Action::Learn(learn) => print_learn(f, learn, names),
            Action::Conjunction { id, clause, clauses } => {
                write!(f, "conjunction({id},{}/{clauses})", clause + 1)
            }
            Action::Multipath(multipath) => print_multipath(f, multipath, names),
            Action::Bundle(bundle) => print_bundle(f, bundle, names),
            Action::FinTimeout { idle_s, hard_s } => print_fin_timeout(f, *idle_s, *hard_s),
            Action::CheckPacketLarger { bytes, to } => {
                write!(f, "check_pkt_larger({bytes})->{}", part(to))
            }
            Action::ConnectionTracking(ct) => print_connection_tracking(f, ct, known),
            Action::Nat(nat) => print_nat(f, nat),
            Action::ClearConnection => f.write_str("ct_clear"),
            Action::Note(note) if note.is_empty() => f.write_str("note"),
            Action::Note(note) => write!(f, "note:{}", bytes(note)),
            Action::Exit => f.write_str("exit"),
            Action::Goto(table) => write!(f, "goto_table:{table}"),
        }
    }
}

fn print_dec_ttl(f: &mut Formatter<'_>, controllers: &[u16]) -> fmt::Result {
    let mut arguments = Arguments::of(f, "dec_ttl")?;
    controllers.iter().try_for_each(|id| arguments.add(id))?;
    arguments.end()
}

fn print_fin_timeout(f: &mut Formatter<'_>, idle_s: u16, hard_s: u16) -> fmt::Result {
    let mut arguments = Arguments::of(f, "fin_timeout")?;
    arguments.add_if(idle_s != 0, format_args!("idle_timeout={idle_s}"))?;
    arguments.add_if(hard_s != 0, format_args!("hard_timeout={hard_s}"))?;
    arguments.end()
}

fn print_controller(f: &mut Formatter<'_>, controller: &Controller) -> fmt::Result {
    let Controller { max_len, reason, id, userdata, pause, meter } = controller;
    let is_plain = Controller { max_len: *max_len, ..Controller::default() } == *controller;
    if is_plain {
        return match *max_len {
            u16::MAX => f.write_str("controller"),
            _ => write!(f, "controller:{max_len}"),
        };
    }
    let mut arguments = Arguments::of(f, "controller")?;
    match REASONS.get(usize::from(*reason)) {
        Some(name) => arguments.add_if(*reason != 1, format_args!("reason={name}"))?,
        None => arguments.add(format_args!("reason={reason}"))?,
    }
    arguments.add_if(*max_len != u16::MAX, format_args!("max_len={max_len}"))?;
    arguments.add_if(*id != 0, format_args!("id={id}"))?;
    arguments.add_if(!userdata.is_empty(), format_args!("userdata={}", bytes(userdata)))?;
    arguments.add_if(*pause, "pause")?;
    if let Some(meter) = meter {
        arguments.add(format_args!("meter_id={meter}"))?;
    }
    arguments.end()
}

fn print_sample(f: &mut Formatter<'_>, sample: &Sample) -> fmt::Result {
    let mut arguments = Arguments::of(f, "sample")?;
    arguments.add(format_args!("probability={}", sample.probability))?;
    let ids = [
        ("collector_set_id", sample.collector_set_id),
        ("obs_domain_id", sample.observation_domain_id),
        ("obs_point_id", sample.observation_point_id),
    ];
    for (name, id) in ids {
        arguments.add_if(id != 0, format_args!("{name}={id}"))?;
    }
    if let Some(to) = sample.port {
        arguments.add(format_args!("sampling_port={}", port(to)))?;
    }
    match sample.direction {
        SampleDirection::Default => {}
        SampleDirection::Ingress => arguments.add("ingress")?,
        SampleDirection::Egress => arguments.add("egress")?,
    }
    arguments.end()
}

fn print_resubmit(
    f: &mut Formatter<'_>,
    in_port: Option<PortNo>,
    table: Option<u8>,
    original: bool,
) -> fmt::Result {
    let to = in_port.map_or(String::new(), port);
    match (table, original) {
        (None, false) => write!(f, "resubmit:{}", in_port.map_or("in_port".to_owned(), port)),
        (table, original) => {
            let table = table.map_or(String::new(), |table| table.to_string());
            write!(f, "resubmit({to},{table}{})", if original { ",ct" } else { "" })
        }
    }
}

fn print_encapsulation(f: &mut Formatter<'_>, header: &EncapsulateHeader) -> fmt::Result {
    match header {
        EncapsulateHeader::Ethernet => f.write_str("encap(ethernet)"),
        EncapsulateHeader::Mpls => f.write_str("encap(mpls)"),
        EncapsulateHeader::MplsMulticast => f.write_str("encap(mpls_mc)"),
        EncapsulateHeader::Nsh { metadata_type, tlvs } => {
            if *metadata_type == 0 {
                return f.write_str("encap(nsh)");
            }
            write!(f, "encap(nsh(md_type={metadata_type}")?;
            for (class, kind, value) in tlvs {
                let value: String = value.iter().map(|byte| format!("{byte:02x}")).collect();
                write!(f, ",tlv({class:#x},{kind},0x{value})")?;
            }
            f.write_str("))")
        }
    }
}

fn print_learn(f: &mut Formatter<'_>, learn: &Learn, names: Names) -> fmt::Result {
    let mut arguments = Arguments::of(f, "learn")?;
    arguments.add(format_args!("table={}", learn.table))?;
    let numbers: [(&str, u64, u64); 6] = [
        ("idle_timeout", learn.idle_timeout_s.into(), 0),
        ("hard_timeout", learn.hard_timeout_s.into(), 0),
        ("fin_idle_timeout", learn.fin_idle_timeout_s.into(), 0),
        ("fin_hard_timeout", learn.fin_hard_timeout_s.into(), 0),
        ("priority", learn.priority.into(), 32768),
        ("limit", learn.limit.into(), 0),
    ];
    for (name, value, default) in numbers {
        arguments.add_if(value != default, format_args!("{name}={value}"))?;
    }
    arguments.add_if(learn.send_flow_removed, "send_flow_rem")?;
    arguments.add_if(learn.delete_learned, "delete_learned")?;
    arguments.add_if(learn.cookie != 0, format_args!("cookie={:#x}", learn.cookie))?;
    if let Some(result) = learn.result {
        arguments.add(format_args!("result_dst={}", names.part(result)))?;
    }
    for (at, spec) in learn.specs.iter().enumerate() {
        let own = Known::of(&learned(&learn.specs[..at])).names();
        arguments.add(learned_part(spec, own, names))?;
    }
    arguments.end()
}

/// A part of a learned rule, in which fields have the names `own`; the packets that it is learned from have `names`.
fn learned_part(spec: &LearnSpec, own: Names, names: Names) -> String {
    match spec {
        LearnSpec::Match { to, from: LearnSource::Field(from) } if own.part(*to) == names.part(*from) => {
            own.part(*to)
        }
        LearnSpec::Match { to, from: LearnSource::Field(from) } => {
            format!("{}={}", own.part(*to), names.part(*from))
        }
        LearnSpec::Match { to, from: LearnSource::Value(value) } if to.is_whole() || is_whole_port(*to) => {
            let info = to.field().info();
            let name = if info.form == Form::Tos { own.of(to.field()).to_owned() } else { own.assigned(*to) };
            format!("{name}={}", masked(info, *value, info.ones()))
        }
        LearnSpec::Match { to, from: LearnSource::Value(value) } => {
            format!("{}={value:#x}", own.part(*to))
        }
        LearnSpec::Load { to, from: LearnSource::Field(from) } => {
            format!("load:{}->{}", names.part(*from), own.part(*to))
        }
        LearnSpec::Load { to, from: LearnSource::Value(value) } => {
            format!("load:{value:#x}->{}", own.assigned(*to))
        }
        LearnSpec::Output(from) => format!("output:{}", names.part(*from)),
    }
}

fn print_multipath(f: &mut Formatter<'_>, multipath: &Multipath, names: Names) -> fmt::Result {
    let Multipath { hash, basis, algorithm, links, argument, to } = multipath;
    write!(f, "multipath({hash},{basis},{algorithm},{links},{argument},{})", names.part(*to))
}

fn print_bundle(f: &mut Formatter<'_>, bundle: &Bundle, names: Names) -> fmt::Result {
    let name = if bundle.to.is_some() { "bundle_load" } else { "bundle" };
    let algorithm = match bundle.algorithm {
        MemberChoice::ActiveBackup => "active_backup",
        MemberChoice::Hrw => "hrw",
    };
    write!(f, "{name}({},{},{algorithm},ofport,", bundle.hash, bundle.basis)?;
    if let Some(to) = bundle.to {
        write!(f, "{},", names.part(to))?;
    }
    let members = bundle.members.iter().map(|member| port(*member)).collect::<Vec<_>>().join(",");
    write!(f, "members:{members})")
}

fn print_connection_tracking(f: &mut Formatter<'_>, ct: &ConnectionTracking, known: &Known) -> fmt::Result {
    let mut arguments = Arguments::of(f, "ct")?;
    arguments.add_if(ct.commit, "commit")?;
    arguments.add_if(ct.force, "force")?;
    if let Some(table) = ct.table {
        arguments.add(format_args!("table={table}"))?;
    }
    match ct.zone {
        Zone::Number(0) => {}
        Zone::Number(zone) => arguments.add(format_args!("zone={zone}"))?,
        Zone::Field(part) => arguments.add(format_args!("zone={}", known.names().part(part)))?,
    }
    match ct.alg {
        0 => {}
        21 => arguments.add("alg=ftp")?,
        69 => arguments.add("alg=tftp")?,
        other => arguments.add(format_args!("alg={other}"))?,
    }
    // A translation in front of the others is printed by itself, as `ovs-ofctl` prints it.
    let inner = match &ct.exec[..] {
        [nat @ Action::Nat(_), inner @ ..] => {
            arguments.add(nat)?;
            inner
        }
        inner => inner,
    };
    arguments.add_if(!inner.is_empty(), format_args!("exec({})", list(inner, known)))?;
    arguments.end()
}

fn print_nat(f: &mut Formatter<'_>, nat: &Nat) -> fmt::Result {
    let Some(range) = nat.range else { return f.write_str("nat") };
    let address = |address: std::net::IpAddr| match (address, range.ports) {
        (std::net::IpAddr::V6(address), Some(_)) => format!("[{address}]"),
        _ => address.to_string(),
    };
    let mut text = if range.is_source { "src" } else { "dst" }.to_owned();
    if let Some((first, last)) = range.addresses {
        let _ = write!(text, "={}", address(first));
        if first != last {
            let _ = write!(text, "-{}", address(last));
        }
    }
    if let Some((first, last)) = range.ports {
        let _ = write!(text, ":{first}");
        if first != last {
            let _ = write!(text, "-{last}");
        }
    }
    let mut arguments = Arguments::of(f, "nat")?;
    arguments.add(text)?;
    arguments.add_if(nat.persistent, "persistent")?;
    arguments.add_if(nat.hash, "hash")?;
    arguments.add_if(nat.random, "random")?;
    arguments.end()
}
