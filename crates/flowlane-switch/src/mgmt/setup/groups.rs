//! Groups of a configuration.

use std::collections::BTreeSet;
use std::sync::Arc;

use flowlane::rule::flow_syntax::read_groups;
use flowlane::rule::group::Group;

use super::lines::Lines;
use super::reader::Reader;
use super::{Setup, SetupError};
use crate::mgmt::config::{Config, ConfigError, KeyPath, Source};
use crate::ruleset::{CompiledGroup, Event, GroupError, Ruleset};

/// The texts of a configuration's groups: the list, then the file.
fn texts<'a>(config: &Config, source: &'a Source) -> Result<Vec<Lines<'a>>, ConfigError> {
    let (section, at) = (&config.groups, KeyPath::of("groups"));
    let mut texts = vec![Lines::list(source, at.key("groups"), &section.groups)];
    if let Some(file) = &section.groups_file {
        texts.push(Lines::file(source, &at.key("groups_file"), file, "")?);
    }
    Ok(texts)
}

/// Reads the groups. The reader then refuses actions that name other groups.
pub(super) fn read(reader: &mut Reader<'_>, config: &Config) -> Result<Vec<Group>, SetupError> {
    let texts = texts(config, reader.source)?;
    // Buckets may lead to groups further down: first the numbers, then what buckets name.
    let mut ids = BTreeSet::new();
    for text in &texts {
        for (line, group) in read_text(reader, text)? {
            if !ids.insert(group.id) {
                let message = format!("group {} is in the list of groups, too", group.id);
                return Err(text.error_in_line(line, message, "give each its own number").into());
            }
        }
    }
    reader.set_groups(ids);
    let (mut groups, mut ruleset) = (Vec::new(), Ruleset::default());
    for text in &texts {
        for (line, group) in read_text(reader, text)? {
            let compiled = match ruleset.compile_group(group.clone()) {
                // Its actions may lead to tables, which are not there yet.
                Err(GroupError::BadBucket) => Arc::new(CompiledGroup::new(group.clone())),
                result => result.map_err(|refused| text.error_in_line(line, refused.to_string(), ""))?,
            };
            let event = Event::Group { id: group.id, group: Some(compiled) };
            ruleset.apply(Arc::new(event)).expect("a group can always be set");
            groups.push(group);
        }
    }
    Ok(groups)
}

fn read_text(reader: &Reader<'_>, text: &Lines<'_>) -> Result<Vec<(usize, Group)>, SetupError> {
    reader.with_options(0, usize::MAX, |options| {
        read_groups(&text.text, &text.name(), options).map_err(|errors| text.errors(errors))
    })
}

impl Setup {
    /// Returns the error of a group that the ruleset refuses, at its line.
    pub(super) fn refused_group(&self, id: u32, refused: GroupError) -> SetupError {
        self.group_error(id, format!("group {id}: {refused}")).unwrap_or_else(|error| error)
    }

    fn group_error(&self, id: u32, message: String) -> Result<SetupError, SetupError> {
        let reader = Reader::new(&self.source, &self.config);
        for text in texts(&self.config, &self.source)? {
            if let Some((line, _)) = read_text(&reader, &text)?.into_iter().find(|(_, group)| group.id == id)
            {
                return Ok(text.error_in_line(line, message, "").into());
            }
        }
        Ok(self.source.error(&KeyPath::of("groups"), message, "").into())
    }
}
