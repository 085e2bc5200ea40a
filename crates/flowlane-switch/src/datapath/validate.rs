//! Validation of every SIMD variant on live traffic against the scalar one: `--validate-simd`.
//!
//! Each burst is parsed by every variant of the parser that this CPU supports, and looked up by every variant of the megaflow
//! cache; hits of the other caches are checked against the megaflow's own mask. The first difference stops the switch, and
//! reports the frame.

use std::fmt::Write;

use flowlane::cache::{FlowRef, MegaflowCache};
use flowlane::isa::Variant;
use flowlane::packet::batch::LaneMask;
use flowlane::packet::{FlowKey, Headers, Parser, parse_captured};

use crate::packet::Frame;
use crate::port::PortError;

/// The error that stopped a worker.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// A port failed for good.
    #[error(transparent)]
    Port(#[from] PortError),
    /// Two variants differ, or a cache hit is wrong: a bug.
    #[error(transparent)]
    Difference(#[from] Difference),
    /// A bug.
    #[error(
        "worker {worker} panicked, and the others were stopped; this is a bug: please report it: {message}"
    )]
    Panicked { worker: usize, message: String },
    /// The system cannot start a worker's thread.
    #[error("no thread for a worker: {0}")]
    Thread(std::io::Error),
}

/// Two variants gave different results for a packet.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "{what} differs from the scalar definition; this is a bug: please report it with this frame (received \
     on port {in_port}):\n{frame}"
)]
pub struct Difference {
    /// The component and its variant.
    pub what: String,
    /// The frame's input port.
    pub in_port: u32,
    /// The frame, in hexadecimal.
    pub frame: String,
}

impl Difference {
    fn new(what: String, in_port: u32, frame: &Frame) -> Self {
        let mut hex = String::new();
        for byte in frame.bytes() {
            let _ = write!(hex, "{byte:02x}");
        }
        Self { what, in_port, frame: hex }
    }
}

/// Compares the variants with the scalar definition.
#[derive(Debug)]
pub(super) struct Validator {
    parsers: Vec<Parser>,
    key: FlowKey,
    /// Packets compared.
    pub(super) packets: u64,
}

impl Validator {
    pub(super) fn new() -> Self {
        let parsers = Variant::ALL.into_iter().filter_map(Parser::with_variant).collect();
        Self { parsers, key: FlowKey::zero(), packets: 0 }
    }

    /// Checks that `keys` and `headers` are the scalar parser's results for `frames`, which may be of a capture, and that every
    /// variant agrees.
    pub(super) fn parsed(
        &mut self,
        frames: &[Frame],
        is_capture: bool,
        in_port: u32,
        keys: &[FlowKey],
        headers: &[Headers],
    ) -> Result<(), Difference> {
        self.packets += frames.len() as u64;
        for ((frame, key), found) in frames.iter().zip(keys).zip(headers) {
            let mut wanted = FlowKey::zero();
            let bytes = if is_capture { frame.captured() } else { frame.bytes().into() };
            let wanted_headers = parse_captured(bytes, in_port, &mut wanted);
            if *key != wanted || key.present() != wanted.present() || *found != wanted_headers {
                return Err(Difference::new("the parser".to_owned(), in_port, frame));
            }
            for parser in &self.parsers {
                let (keys, mut headers) = (std::slice::from_mut(&mut self.key), [Headers::default()]);
                parser.parse_all(std::iter::once(bytes), in_port, keys, &mut headers);
                if self.key != wanted
                    || self.key.present() != wanted.present()
                    || headers[0] != wanted_headers
                {
                    return Err(Difference::new(format!("parser {}", parser.variant()), in_port, frame));
                }
            }
        }
        Ok(())
    }

    /// Checks that all variants of the megaflow cache agree on the `live` lanes.
    pub(super) fn megaflows(
        megaflows: &mut MegaflowCache,
        keys: &[FlowKey],
        frames: &[Frame],
        live: LaneMask,
        in_port: u32,
    ) -> Result<(), Difference> {
        megaflows.compare_variants(keys, live).map_err(|(variant, lane)| {
            Difference::new(format!("megaflow cache {variant}"), in_port, &frames[lane])
        })
    }

    /// Checks that the megaflows `found` for the lanes of `hit` match their keys.
    pub(super) fn hits(
        name: &str,
        megaflows: &MegaflowCache,
        keys: &[FlowKey],
        frames: &[Frame],
        (hit, found): (LaneMask, &[FlowRef]),
        in_port: u32,
    ) -> Result<(), Difference> {
        match hit.lanes().find(|&lane| !megaflows.matches(found[lane], &keys[lane])) {
            Some(lane) => Err(Difference::new(format!("the {name} cache"), in_port, &frames[lane])),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use flowlane::cache::MegaflowConfig;
    use flowlane::packet::{Field, FlowMask, parse};

    use super::*;

    #[test]
    fn a_wrong_key_a_wrong_offset_and_a_wrong_hit_are_told_with_their_frame() {
        let mut validator = Validator::new();
        let mut frame = Frame::default();
        frame.fill(&[7; 60]);
        let frames = [frame];
        let mut key = FlowKey::zero();
        let headers = parse(frames[0].bytes(), 3, &mut key);
        let mut keys = [key];
        validator.parsed(&frames, false, 3, &keys, &[headers]).unwrap();
        let other = Headers { payload: 9, ..headers };
        assert!(validator.parsed(&frames, false, 3, &keys, &[other]).is_err());
        keys[0].set(Field::TpDst, 1);
        let difference = validator.parsed(&frames, false, 3, &keys, &[headers]).unwrap_err();
        assert!(difference.to_string().contains(&"07".repeat(60)), "{difference}");
        let mut megaflows = MegaflowCache::new(MegaflowConfig::default());
        let mut mask = FlowMask::zero();
        mask.add_field(Field::TpDst);
        let flow = megaflows.insert(&keys[0], &mask, 0, 0, 0).unwrap();
        let hit = |keys: &[FlowKey]| {
            Validator::hits("exact-match", &megaflows, keys, &frames, (LaneMask(1), &[flow]), 3)
        };
        assert_eq!(hit(&keys), Ok(()));
        keys[0].set(Field::TpDst, 2);
        assert!(hit(&keys).is_err());
    }
}
