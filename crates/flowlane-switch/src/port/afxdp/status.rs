//! How a port exchanges frames with its interface.

use std::fmt;

use super::{Attachment, Features};

/// How a port exchanges frames with its interface.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Status {
    /// Where the program works.
    pub attachment: Attachment,
    /// The driver shares our buffers.
    pub without_copies: bool,
    /// Abilities that the kernel has accepted.
    pub features: Features,
    /// Whole segments pass, through a packet socket.
    pub segments: bool,
    /// The program is detached, since mostly whole segments come.
    pub is_detached: bool,
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_detached {
            return f.write_str("packet socket");
        }
        f.write_str(match self.attachment {
            Attachment::Native => "native",
            Attachment::Skb => "generic",
        })?;
        f.write_str(if self.without_copies { ", without copies" } else { "" })?;
        f.write_str(if self.features.several_buffers { "" } else { ", one buffer a frame" })?;
        f.write_str(match (self.segments, self.features.checksums) {
            (true, _) => ", offloads",
            (false, true) => ", checksum offload",
            (false, false) => "",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_says_what_the_kernel_has_refused() {
        let all = Status {
            attachment: Attachment::Native,
            without_copies: false,
            features: Features { several_buffers: true, checksums: true },
            segments: true,
            is_detached: false,
        };
        assert_eq!(all.to_string(), "native, offloads");
        let old = Status { features: Features::default(), segments: false, ..all };
        assert_eq!(old.to_string(), "native, one buffer a frame");
        let card = Status { without_copies: true, ..old };
        assert_eq!(card.to_string(), "native, without copies, one buffer a frame");
        assert_eq!(Status { segments: false, ..all }.to_string(), "native, checksum offload");
        assert_eq!(Status { is_detached: true, ..all }.to_string(), "packet socket");
    }
}
