//! Tables of OVN, as `ovs-ofctl dump-flows` prints them.

use std::fs::File;
use std::io::Read;

use super::super::{print_rules, read};
use super::options;
use crate::packet::fields::Field;
use crate::rule::Action;

#[test]
fn tables_of_ovn_are_read_and_printed_as_the_same_rules() {
    for (name, flows) in [("ovn-small", 969), ("ovn-rich", 1114)] {
        let Some(path) = crate::testing::data(format!("../ovs/{name}.flows.gz")) else { continue };
        let mut text = String::new();
        let file = File::open(path).expect("the file can be opened");
        flate2::read::GzDecoder::new(file).read_to_string(&mut text).expect("the file can be read");
        let rules = read(&text, name, &options()).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(rules.len(), flows, "{name}");
        assert_eq!(read(&print_rules(&rules), "printed", &options()).as_ref(), Ok(&rules));
        let tracks = |rule: &&crate::rule::Rule| {
            rule.actions.iter().any(|action| matches!(action, Action::ConnectionTracking(_)))
        };
        assert!(rules.iter().filter(tracks).count() > 50, "{name}");
        assert!(rules.iter().any(|rule| rule.matches.get(Field::CtState).1 != 0), "{name}");
    }
}
