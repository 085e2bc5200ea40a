//! Actions that send packets somewhere.

use super::super::super::ReadOptions;
use super::super::super::action::{Action, Controller, PortNo, Sample, SampleDirection};
use super::super::super::error::{Fault, Token};
use super::super::known::Known;
use super::super::names::{self, read_part};
use super::super::{commas, key_value, number, split, values};

/// Names of reasons for which a controller gets a packet (`enum ofp_packet_in_reason`), by number.
pub(in super::super) const REASONS: [&str; 6] =
    ["no_match", "action", "invalid_ttl", "action_set", "group", "packet_out"];

/// A port that packets may be sent to.
pub(in super::super) fn port(token: Token<'_>, options: &ReadOptions<'_>) -> Result<PortNo, Fault> {
    let port = PortNo(values::port(token, options)?);
    match port <= PortNo::MAX || port == PortNo::LOCAL {
        true => Ok(port),
        false => Err(token.fault(format!("a port number is 0 to {}", PortNo::MAX.0))),
    }
}

/// `output:` and a port by its name or number, one of OpenFlow's names for more than a port, or a field.
pub(super) fn output(token: Token<'_>, options: &ReadOptions<'_>, known: &Known) -> Result<Action, Fault> {
    let name = token.text.trim_matches('"');
    let is_configured = (options.ports)(name).is_some();
    if !is_configured && (token.text.contains("max_len=") || token.text.contains("port=")) {
        return truncated(token, options, known);
    }
    let is_field = token.text.ends_with(']') || names::by_name(token.text).is_some();
    if !is_configured && !values::is_reserved_port(name) && is_field {
        return read_part(token, known).map(|port| Action::OutputField { port, max_len: u16::MAX });
    }
    let number = values::port(token, options)?;
    if is_configured {
        return port(token, options).map(Action::Output);
    }
    match number {
        0xfff8 => Ok(Action::InPort),
        0xfff9 => Err(no_port(token, "table")),
        0xfffa => Ok(Action::Normal),
        0xfffb => Ok(Action::Flood),
        0xfffc => Ok(Action::All),
        0xfffd => Ok(Action::controller(u16::MAX)),
        0xffff => Err(no_port(token, "any")),
        _ => port(token, options).map(Action::Output),
    }
}

/// The fault of a name of OpenFlow's that no packet can be sent to.
fn no_port(token: Token<'_>, name: &str) -> Fault {
    let fault = super::unknown(Token { text: name, at: token.at }, "port");
    Fault { len: token.text.len(), ..fault }
}

/// `port=PORT,max_len=BYTES`, or a field in place of the port.
fn truncated(token: Token<'_>, options: &ReadOptions<'_>, known: &Known) -> Result<Action, Fault> {
    let (mut to, mut max_len) = (None, None);
    for part in split(token)? {
        match key_value(part)? {
            (key, Some(value)) if key.text == "port" => to = Some(value),
            (key, value) if key.text == "max_len" => {
                max_len = Some((key, number(key, value, u32::MAX.into())? as u32));
            }
            (key, _) => return Err(key.fault("`port=PORT,max_len=BYTES` is expected")),
        }
    }
    let (Some(to), Some((key, max_len))) = (to, max_len) else {
        return Err(token.fault("`port=PORT,max_len=BYTES` is expected"));
    };
    let is_field = to.text.ends_with(']') || names::by_name(to.text).is_some();
    if (options.ports)(to.text).is_none() && !values::is_reserved_port(to.text) && is_field {
        let max_len = max_len.try_into().map_err(|_| key.fault("at most 65535 bytes are sent"))?;
        return read_part(to, known).map(|port| Action::OutputField { port, max_len });
    }
    if max_len < 14 {
        return Err(key.fault("at least 14 bytes are sent: an Ethernet header"));
    }
    match values::port(to, options)? {
        0xfff8 => Ok(Action::OutputTruncated { port: PortNo::IN_PORT, max_len }),
        _ => port(to, options).map(|port| Action::OutputTruncated { port, max_len }),
    }
}

/// `PORT:QUEUE` or `PORT,QUEUE`.
pub(super) fn enqueue(argument: Token<'_>, options: &ReadOptions<'_>) -> Result<Action, Fault> {
    let parts = argument.split(",").or_else(|| {
        let colon = argument.text.rfind(':')?;
        Some((argument.part(0, colon), argument.part(colon + 1, argument.text.len())))
    });
    let Some((to, queue)) = parts else {
        return Err(argument.fault("`enqueue:PORT:QUEUE` is expected"));
    };
    let (to, queue) = (to.trim(), queue.trim());
    let queue = values::number(queue, u32::MAX.into())? as u32;
    match values::port(to, options)? {
        0xfff8 => Ok(Action::Enqueue { port: PortNo::IN_PORT, queue }),
        _ => port(to, options).map(|port| Action::Enqueue { port, queue }),
    }
}

/// `PORT`, `PORT,TABLE` or `PORT,TABLE,ct`; a part that is left out stays.
pub(super) fn resubmit(
    argument: Token<'_>,
    known: &Known,
    options: &ReadOptions<'_>,
) -> Result<Action, Fault> {
    let parts = commas(argument);
    let given = |at: usize| parts.get(at).copied().filter(|part| !part.text.is_empty());
    let own = |to: &Token<'_>| to.text.eq_ignore_ascii_case("in_port");
    let in_port = given(0).filter(|to| !own(to)).map(|to| port(to, options)).transpose()?;
    let table = given(1).map(|table| values::number(table, 254)).transpose()?.map(|table| table as u8);
    let original = match given(2) {
        Some(ct) if ct.text == "ct" && !known.may_show_connection() => {
            return Err(ct.fault(
                "packets of connections are needed in the match: `ct_state=+new`, `+est`, `+rel`, `+rpl` or `+trk-inv`",
            ));
        }
        Some(ct) if ct.text == "ct" => true,
        Some(other) => return Err(other.fault("`ct` is expected, or nothing")),
        None => false,
    };
    if in_port.is_none() && table.is_none() || parts.len() > 3 {
        return Err(argument.fault("`resubmit(PORT,TABLE)` is expected; one of both may be left out"));
    }
    Ok(Action::Resubmit { in_port, table, original })
}

/// `65535`, `max_len=65535`, or nothing; `reason=`, `id=`, `userdata=`, `pause`, `meter_id=`.
pub(super) fn controller(argument: Option<Token<'_>>) -> Result<Action, Fault> {
    let mut out = Controller::default();
    let parts = match argument {
        Some(argument) => split(argument)?,
        None => Vec::new(),
    };
    if let [only] = &parts[..]
        && only.text.starts_with(|c: char| c.is_ascii_digit())
    {
        let max_len = values::number(*only, 0xffff)
            .map_err(|_| only.fault("the bytes that are kept of a packet are expected, 0 to 65535"))?;
        return Ok(Action::controller(max_len as u16));
    }
    for part in parts {
        let (key, value) = key_value(part)?;
        match key.text {
            "max_len" => out.max_len = number(key, value, 0xffff)? as u16,
            "id" => out.id = number(key, value, 0xffff)? as u16,
            "meter_id" => out.meter = Some(number(key, value, u32::MAX.into())? as u32),
            "pause" if value.is_none() => out.pause = true,
            "reason" => out.reason = reason(value.unwrap_or(key))?,
            "userdata" => {
                out.userdata = bytes(value.ok_or_else(|| key.fault("`userdata=BYTES` is expected"))?)?;
            }
            _ => {
                let problem = "the bytes that are kept of a packet are expected, 0 to 65535; or max_len, reason, id, userdata, pause and meter_id";
                return Err(part.fault(problem));
            }
        }
    }
    Ok(Action::Controller(Box::new(out)))
}

fn reason(token: Token<'_>) -> Result<u8, Fault> {
    let named = REASONS.iter().position(|name| *name == token.text).map(|number| number as u8);
    let numbered = || values::number(token, 0xff).ok().map(|number| number as u8);
    named.or_else(numbered).ok_or_else(|| token.fault(format!("one of {} is expected", REASONS.join(", "))))
}

/// Bytes in hexadecimal, perhaps with points between them.
pub(super) fn bytes(token: Token<'_>) -> Result<Vec<u8>, Fault> {
    let mut out = Vec::with_capacity(token.text.len() / 2);
    let mut rest = token.text;
    while !rest.is_empty() {
        let byte = rest.get(..2).filter(|two| two.bytes().all(|c| c.is_ascii_hexdigit()));
        let byte = byte.and_then(|two| u8::from_str_radix(two, 16).ok());
        out.push(byte.ok_or_else(|| {
            let at = token.text.len() - rest.len();
            token.part(at, token.text.len()).fault("bytes of two hexadecimal digits are expected, as 00.1f")
        })?);
        rest = &rest[2..];
        rest = rest.strip_prefix('.').unwrap_or(rest);
    }
    Ok(out)
}

/// `probability=N`, and the other arguments of Open vSwitch.
pub(super) fn sample(argument: Token<'_>, options: &ReadOptions<'_>) -> Result<Action, Fault> {
    let mut out = Sample::default();
    let mut has_probability = false;
    for part in split(argument)? {
        let (key, value) = key_value(part)?;
        let id = || number(key, value, u32::MAX.into()).map(|id| id as u32);
        match key.text {
            "probability" => {
                (has_probability, out.probability) = (true, number(key, value, 0xffff)? as u16);
            }
            "collector_set_id" => out.collector_set_id = id()?,
            "obs_domain_id" => out.observation_domain_id = id()?,
            "obs_point_id" => out.observation_point_id = id()?,
            "sampling_port" => {
                let to = value.ok_or_else(|| key.fault("`sampling_port=PORT` is expected"))?;
                out.port = Some(port(to, options)?);
            }
            "ingress" => out.direction = SampleDirection::Ingress,
            "egress" => out.direction = SampleDirection::Egress,
            _ => {
                let problem = "probability, collector_set_id, obs_domain_id, obs_point_id, sampling_port, ingress or egress is expected";
                return Err(key.fault(problem));
            }
        }
    }
    match has_probability {
        true => Ok(Action::Sample(Box::new(out))),
        false => Err(argument.fault("`sample(probability=N)`, N up to 65535, is expected")),
    }
}
