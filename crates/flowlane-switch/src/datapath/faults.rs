//! Frames in which something is malformed.

use flowlane::packet::{Headers, Malformed};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The treatment of malformed frames. They are counted in any case.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum MalformedPolicy {
    /// They are dropped.
    #[default]
    Drop,
    /// They are matched on the headers that could be parsed, as in Open vSwitch.
    Forward,
}

/// The policy for malformed frames, and their counts. A frame that is sound on the outside may turn out to be
/// malformed when a label, a tag or a tunnel has gone and it is parsed again: it is treated alike then.
#[derive(Clone, Copy, Debug)]
pub struct Faults {
    /// The policy.
    pub policy: MalformedPolicy,
    /// How many, by reason: each time that one is found in a frame which was sound as far as it had been parsed.
    pub found: [u64; Malformed::ALL.len()],
}

impl Default for Faults {
    fn default() -> Self {
        Self { policy: MalformedPolicy::default(), found: [0; Malformed::ALL.len()] }
    }
}

impl Faults {
    /// Counts the fault of a frame, unless it `was` known to be malformed. Returns whether the frame goes on.
    #[inline]
    pub fn admit(&mut self, headers: &Headers, was: bool) -> bool {
        let Some(reason) = headers.malformed else { return true };
        self.found[reason as usize] += u64::from(!was);
        self.policy == MalformedPolicy::Forward
    }
}
