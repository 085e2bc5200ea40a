//! Checks of arbitrary input, for fuzzing and for its regressions.

use crate::{Replica, Session, Wanted};

const WANTED: [Wanted; 1] = [Wanted { table: "Bridge", columns: &["name", "ports", "other_config"] }];
const SCHEMA: &[u8] =
    br#"{"id":1,"error":null,"result":{"tables":{"Bridge":{"columns":{"name":{"type":"string"},
    "ports":{"type":{"key":"uuid","min":0,"max":"unlimited"}},
    "other_config":{"type":{"key":"string","value":"string","min":0,"max":"unlimited"}}}}}}}"#;

/// Gives bytes to a session whose server has sent its schema: it goes on or ends with an error, and what it sends is bounded by what has
/// come.
pub fn session(bytes: &[u8]) {
    let mut session = Session::new("Open_vSwitch", &WANTED, Some("lock"), Replica::default());
    session.receive(SCHEMA).expect("it is a schema");
    // In pieces, as they come.
    for piece in bytes.chunks(7) {
        if session.receive(piece).is_err() {
            break;
        }
    }
    for (_, row) in session.replica().rows("Bridge") {
        _ = (row.get("name").text(), row.get("ports").uuids().count(), row.get("other_config").get("key"));
    }
    // An echo comes back with what it has brought, escaped.
    assert!(session.take_outgoing().len() < 4096 + 64 * bytes.len());
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use proptest::prelude::*;

    fn inputs() -> Vec<Vec<u8>> {
        let folders = ["corpus/ovsdb", "regressions/ovsdb"];
        let folder = |name| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz").join(name);
        let files = folders.into_iter().filter_map(|name| folder(name).read_dir().ok()).flatten().flatten();
        files.filter_map(|file| std::fs::read(file.path()).ok()).collect()
    }

    #[test]
    fn inputs_of_fuzzing_are_harmless() {
        let all = inputs();
        assert!(all.len() >= 3, "the seeds are there");
        all.iter().for_each(|bytes| super::session(bytes));
    }

    proptest! {
        #[test]
        fn changed_messages_are_harmless(at in 0usize..3, changes in prop::collection::vec((0usize..2000, any::<u8>()), 0..20)) {
            let mut bytes = inputs().swap_remove(at);
            let len = bytes.len();
            changes.into_iter().for_each(|(place, byte)| bytes[place % len] = byte);
            super::session(&bytes);
        }
    }
}
