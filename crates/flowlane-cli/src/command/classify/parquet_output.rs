//! Output of verdicts as a Parquet or Arrow file.

use std::path::Path;

use flowlane_query::{Format, Rules, VerdictFile};

use super::List;
use super::sink::VerdictBuffer;
use crate::failure::Failure;
use crate::output::AtomicFile;

/// A Parquet or Arrow file of verdicts.
pub(super) struct ColumnarFile<'a> {
    verdicts: VerdictFile,
    file: AtomicFile<'a>,
}

impl<'a> ColumnarFile<'a> {
    pub(super) fn create(path: &'a Path, lists: &[List]) -> Result<Self, Failure> {
        let format = match path.extension().is_some_and(|e| e.eq_ignore_ascii_case("arrow")) {
            true => Format::Arrow,
            false => Format::Parquet,
        };
        let rules = lists.iter().map(|list| {
            let rules = list.rules.iter().zip(&list.actions);
            Rules::new(rules.map(|(rule, action)| (rule.priority.0, action.as_str())))
        });
        let (file, writer) = AtomicFile::create(path)?;
        let verdicts = VerdictFile::new(format, rules.collect(), Box::new(writer))?;
        Ok(Self { verdicts, file })
    }

    pub(super) fn write(&mut self, buffer: &VerdictBuffer) -> Result<(), Failure> {
        if !buffer.rules.is_empty() {
            self.verdicts.add(buffer.first, &buffer.rules)?;
        }
        Ok(())
    }

    pub(super) fn finish(self) -> Result<(), Failure> {
        self.verdicts.finish()?;
        self.file.commit()
    }
}
