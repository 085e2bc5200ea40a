//! Checks that what actions refer to by number is there.

use flowlane::rule::action::Reference;
use flowlane::rule::{Action, Match, Rule};

use super::{Control, References, Refusal};
use crate::ruleset::{Ruleset, limited};

impl Control {
    /// Checks the actions of a packet that a controller sends.
    ///
    /// # Errors
    /// The first that the switch does not execute, or that refers to something absent.
    pub fn check_packet_out(&self, actions: &[Action]) -> Result<(), Refusal> {
        let ruleset = self.ruleset();
        ruleset.check_actions(&Rule::new(Match::any(), actions.to_vec()))?;
        self.check_references(&ruleset, actions)?;
        self.learned.count(&limited(actions), &ruleset);
        Ok(())
    }

    pub(super) fn check_references(&self, ruleset: &Ruleset, actions: &[Action]) -> Result<(), Refusal> {
        let References { ports, tunnels, any_port, .. } = &self.references;
        for action in actions {
            self.check_references(ruleset, action.nested())?;
            for reference in action.references() {
                let (what, number, there) = match reference {
                    Reference::Port(port) if !any_port && !ports.contains_key(&port.0) => {
                        ("port", port.0, list(ports.keys()))
                    }
                    Reference::Meter(meter) if !self.meters.contains_key(&meter) => {
                        ("meter", meter, list(self.meters.keys()))
                    }
                    Reference::Tunnel(tunnel) if !tunnels.contains(&tunnel) => {
                        ("tunnel", tunnel, list(tunnels))
                    }
                    Reference::Group(group) if ruleset.groups().get(group).is_none() => {
                        ("group", group, list(ruleset.groups().iter().map(|(id, _)| id)))
                    }
                    Reference::Option(option) if self.lacks_option(option) => {
                        return Err(Refusal::NoOption(option));
                    }
                    // The ruleset has checked the table.
                    Reference::Option(_)
                    | Reference::Table(_)
                    | Reference::Port(_)
                    | Reference::Meter(_)
                    | Reference::Tunnel(_)
                    | Reference::Group(_) => continue,
                };
                return Err(Refusal::Absent { what, number, there });
            }
        }
        Ok(())
    }
}

/// The first of some numbers.
fn list(numbers: impl IntoIterator<Item = impl ToString>) -> String {
    let numbers: Vec<String> = numbers.into_iter().take(16).map(|number| number.to_string()).collect();
    if numbers.is_empty() { "none".to_owned() } else { numbers.join(", ") }
}
