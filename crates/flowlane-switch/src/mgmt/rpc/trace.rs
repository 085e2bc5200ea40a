//! Traces of packets.

use flowlane::generate::packet::build_frame;
use flowlane::packet::Field;
use flowlane::packet::fields::word;
use flowlane::packet::key::FlowKey;
use flowlane::rule::action::PortNo;
use flowlane_capture::FRAME_MAX;
use serde::Deserialize;

use super::RpcError;
use super::server::ControlServer;
use crate::datapath::{Trace, Tracing};
use crate::state::conntrack::ct_state;

/// Minimum length of a frame built from a flow.
const FRAME_BYTES: usize = 60;

/// TTL (hop limit, TTL of a label) of a packet built from a flow that names none: what hosts send with (RFC 1700, "IP
/// Parameters"), so that a routed trace does not end at the first router.
const TTL: u128 = 64;

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct TraceParams {
    /// A port's number; by default that of the flow, or the first port.
    in_port: Option<u32>,
    /// In hexadecimal.
    frame: String,
    /// A flow in the syntax of rule files, to build a frame from. Instead of `frame`.
    flow: String,
    /// States that `ct` actions find, one after the other.
    ct_next: Vec<String>,
}

impl ControlServer {
    /// Traces a packet as a client asks for it.
    ///
    /// # Errors
    /// As of [`trace`](Self::trace).
    pub(super) fn trace_packet(&self, params: TraceParams) -> Result<Trace, RpcError> {
        let TraceParams { in_port, frame, flow, ct_next } = params;
        self.trace(in_port, &frame, &flow, &ct_next)
    }

    /// Traces a packet as JSON asks for it: `in_port`, `frame` or `flow`, and `ct_next`.
    ///
    /// # Errors
    /// Where the text is not such an object; else as of [`trace`](Self::trace).
    pub(crate) fn trace_json(&self, text: &[u8]) -> Result<Trace, RpcError> {
        let params = serde_json::from_slice(text);
        let params = params.map_err(|error| RpcError::new(RpcError::PARAMS, error.to_string()))?;
        self.trace_packet(params)
    }

    /// Traces a packet that arrives at a port: a frame in hexadecimal, or one built from a flow.
    ///
    /// # Errors
    /// Where the frame or flow is malformed, the port does not exist, or the switch does not run.
    pub fn trace(
        &self,
        in_port: Option<u32>,
        frame: &str,
        flow: &str,
        ct_next: &[String],
    ) -> Result<Trace, RpcError> {
        let refused = |message: String| RpcError::new(RpcError::PARAMS, message);
        let states = ct_next.iter().map(|state| ct_state::read(state)).collect::<Result<Vec<_>, _>>();
        let states = states.map_err(refused)?;
        let mut port = in_port;
        let (mut bytes, mut fields) = (Vec::new(), FlowKey::zero());
        if frame.is_empty() {
            // Of a range, the first packet, as of a mask.
            let matches = self.read_flow(flow)?.swap_remove(0).rule.matches;
            let mut key = matches.key();
            for field in [Field::NwTtl, Field::MplsTtl] {
                if matches.get(field).1 == 0 {
                    key.set(field, TTL);
                }
            }
            let of_flow = key.word(word::IN_PORT);
            port = port.or((of_flow != 0).then_some(of_flow));
            build_frame(&key, FRAME_BYTES, &mut bytes);
            fields = key;
        } else {
            // `from_str_radix` accepts a sign.
            let digits = |hex: &&str| hex.bytes().all(|digit| digit.is_ascii_hexdigit());
            let byte = |at: usize| {
                frame.get(at..at + 2).filter(digits).and_then(|hex| u8::from_str_radix(hex, 16).ok())
            };
            if frame.len() > 2 * FRAME_MAX {
                return Err(refused(format!("a frame has at most {FRAME_MAX} bytes")));
            }
            let read: Option<Vec<u8>> = (0..frame.len()).step_by(2).map(byte).collect();
            bytes = read.ok_or_else(|| refused("a frame is hexadecimal digits, two a byte".to_owned()))?;
        }
        let begun = self.call_worker(0, move |worker| {
            let first = worker.egress.ports.iter().next().map_or(PortNo(0), |slot| slot.number);
            worker.trace_with_fields(port.map_or(first, PortNo), &bytes, &fields, states)
        })?;
        let mut tracing = begun.map_err(refused)?;
        loop {
            tracing = match tracing {
                Tracing::Ended(trace) => return Ok(trace),
                Tracing::On { worker, packet, stage } => {
                    self.call_worker(worker, move |worker| worker.trace_on(packet, stage))?
                }
            };
        }
    }
}
