//! Changes of the fields of GENEVE options.

use flowlane::packet::Field;
use flowlane::rule::action::Reference;
use flowlane::rule::{Match, Rule};
use flowlane::tunnel::{MappedOption, OptionMap, OptionMapError};

use super::flow_mods::Made;
use super::groups::names;
use super::{Control, Refusal};

/// A change of the fields of options.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum OptionMod {
    /// Gives options these fields, by number.
    Add(Vec<(usize, MappedOption)>),
    /// Takes their options from these fields.
    Delete(Vec<usize>),
    /// Takes its option from every field.
    Clear,
}

/// Why the fields of options cannot be changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OptionsError {
    #[error(transparent)]
    Map(#[from] OptionMapError),
    /// A rule has the field.
    #[error("a rule has tun_metadata{0}")]
    InUse(usize),
}

impl Control {
    /// Changes the fields of options, all or none, and waits until no packet comes out of a tunnel with the former ones.
    ///
    /// # Errors
    /// The change is rejected; nothing has changed.
    pub fn change_options(&mut self, change: &OptionMod) -> Result<(), OptionsError> {
        self.reclaim();
        self.catch_up();
        let mut options = self.options.clone();
        match change {
            OptionMod::Add(added) => {
                added.iter().try_for_each(|&(number, option)| options.add(number, option))?;
            }
            OptionMod::Delete(numbers) => numbers.iter().for_each(|number| options.remove(*number)),
            OptionMod::Clear => options = OptionMap::default(),
        }
        let gone = self.options.iter().map(|(number, _)| number);
        if let Some(used) =
            gone.filter(|number| options.get(*number).is_none()).find(|gone| self.is_used(*gone))
        {
            return Err(OptionsError::InUse(used));
        }
        self.options = options;
        self.apply_resources();
        self.publish_changes(&Made::default(), self.readers.now_ns());
        self.wait();
        Ok(())
    }

    /// Returns the fields of options.
    pub fn options(&self) -> &OptionMap {
        &self.options
    }

    /// Returns whether a rule has the field of an option.
    fn is_used(&self, number: usize) -> bool {
        let uses = |rule: &Rule| {
            has_option(&rule.matches, number)
                || names(&rule.actions, &|reference| reference == Reference::Option(number))
        };
        self.standby.tables().any(|(_, table)| table.rules().any(|(_, entry)| uses(&entry.rule)))
    }

    /// Returns whether controllers' rules may not have the field of an option. Those of configurations may have all: where no option
    /// is mapped, the field is a register.
    pub(super) fn lacks_option(&self, number: usize) -> bool {
        self.references.any_port && self.options.get(number).is_none()
    }

    /// Checks that the options that a match asks for are mapped.
    pub(super) fn check_options(&self, matches: &Match) -> Result<(), Refusal> {
        let (_, asked) = matches.get(Field::TunMetadataPresent);
        let lacking = (0..128).find(|number| asked >> number & 1 != 0 && self.lacks_option(*number));
        lacking.map_or(Ok(()), |number| Err(Refusal::NoOption(number)))
    }
}

fn has_option(matches: &Match, number: usize) -> bool {
    matches.get(Field::TunMetadataPresent).1 >> number & 1 != 0
}
