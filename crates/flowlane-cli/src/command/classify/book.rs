//! Where verdicts are written to, in the packets' order: text, or a file of columns.

use std::path::Path;

use super::List;
use super::verdicts::Verdicts;
use crate::failure::Failure;
use crate::output::Output;

/// What has come of some packets.
#[derive(Default)]
pub(super) struct Sheet {
    pub(super) text: String,
    /// Of a file of columns instead: the number of the first packet, and of each packet its rule by every list.
    pub(super) first: u64,
    pub(super) rules: Vec<u32>,
}

impl Sheet {
    pub(super) fn clear(&mut self) {
        self.text.clear();
        self.rules.clear();
    }
}

/// What takes all sheets.
pub(super) enum Book<'a> {
    Text(Output<'a>),
    #[cfg(feature = "query")]
    Columns(Box<columns::Columns<'a>>),
}

/// Whether a file is called as those of columns are.
pub(super) fn is_of_columns(path: Option<&Path>) -> bool {
    let ending = path.and_then(Path::extension).and_then(|e| e.to_str()).map(str::to_ascii_lowercase);
    matches!(ending.as_deref(), Some("parquet" | "arrow"))
}

impl<'a> Book<'a> {
    /// The file that is asked for, or standard output.
    pub(super) fn create(
        path: Option<&'a Path>,
        verdicts: &Verdicts,
        lists: &[List],
    ) -> Result<Self, Failure> {
        match path {
            #[cfg(feature = "query")]
            Some(path) if is_of_columns(Some(path)) => {
                columns::Columns::create(path, lists).map(|columns| Self::Columns(Box::new(columns)))
            }
            #[cfg(not(feature = "query"))]
            Some(path) if is_of_columns(Some(path)) => Err(Failure::Environment(format!(
                "{}: this flowlane was built without Parquet and Arrow ({} lists are written as CSV); `--features query` has them",
                path.display(),
                lists.len()
            ))),
            path => {
                let mut output = Output::create(path)?;
                output.text(&verdicts.head())?;
                Ok(Self::Text(output))
            }
        }
    }

    pub(super) fn write(&mut self, sheet: &Sheet) -> Result<(), Failure> {
        match self {
            Self::Text(output) => output.text(&sheet.text),
            #[cfg(feature = "query")]
            Self::Columns(columns) => columns.write(sheet),
        }
    }

    /// Ends it; `tail` stands behind all sheets of text.
    pub(super) fn finish(self, tail: &str) -> Result<(), Failure> {
        match self {
            Self::Text(mut output) => {
                output.text(tail)?;
                output.finish()
            }
            #[cfg(feature = "query")]
            Self::Columns(columns) => columns.finish(),
        }
    }
}

#[cfg(feature = "query")]
mod columns {
    use std::path::Path;

    use flowlane_query::{Format, Rules, VerdictFile};

    use super::{List, Sheet};
    use crate::failure::Failure;
    use crate::output::Beside;

    /// A file of columns.
    pub(in super::super) struct Columns<'a> {
        file: VerdictFile,
        beside: Beside<'a>,
    }

    impl<'a> Columns<'a> {
        pub(super) fn create(path: &'a Path, lists: &[List]) -> Result<Self, Failure> {
            let format = match path.extension().is_some_and(|e| e.eq_ignore_ascii_case("arrow")) {
                true => Format::Arrow,
                false => Format::Parquet,
            };
            let rules = lists.iter().map(|list| {
                let rules = list.rules.iter().zip(&list.actions);
                Rules::new(rules.map(|(rule, action)| (rule.priority.0, action.as_str())))
            });
            let (beside, sink) = Beside::create(path)?;
            let file = VerdictFile::new(format, rules.collect(), Box::new(sink))?;
            Ok(Self { file, beside })
        }

        pub(super) fn write(&mut self, sheet: &Sheet) -> Result<(), Failure> {
            if !sheet.rules.is_empty() {
                self.file.add(sheet.first, &sheet.rules)?;
            }
            Ok(())
        }

        pub(super) fn finish(self) -> Result<(), Failure> {
            self.file.finish()?;
            self.beside.keep()
        }
    }
}
