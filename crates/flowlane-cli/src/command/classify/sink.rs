//! Output of verdicts in packet order, as text or as columns.

use std::path::Path;

use super::List;
#[cfg(feature = "query")]
use super::parquet_output::ColumnarFile;
use super::verdicts::Verdicts;
use crate::failure::Failure;
use crate::output::Output;

/// The formatted verdicts of consecutive packets.
#[derive(Default)]
pub(super) struct VerdictBuffer {
    pub(super) text: String,
    /// For columnar output instead of text: the number of the first packet, and each packet's rule per list.
    pub(super) first: u64,
    pub(super) rules: Vec<u32>,
}

impl VerdictBuffer {
    pub(super) fn clear(&mut self) {
        self.text.clear();
        self.rules.clear();
    }
}

/// Destination of all verdicts.
pub(super) enum VerdictSink<'a> {
    Text(Output<'a>),
    #[cfg(feature = "query")]
    Columnar(Box<ColumnarFile<'a>>),
}

/// Returns whether the name selects columnar output.
pub(super) fn is_columnar(path: Option<&Path>) -> bool {
    let ending = path.and_then(Path::extension).and_then(|e| e.to_str()).map(str::to_ascii_lowercase);
    matches!(ending.as_deref(), Some("parquet" | "arrow"))
}

impl<'a> VerdictSink<'a> {
    /// Opens the requested file, or standard output.
    pub(super) fn create(
        path: Option<&'a Path>,
        verdicts: &Verdicts,
        lists: &[List],
    ) -> Result<Self, Failure> {
        match path {
            #[cfg(feature = "query")]
            Some(path) if is_columnar(Some(path)) => {
                ColumnarFile::create(path, lists).map(|file| Self::Columnar(Box::new(file)))
            }
            #[cfg(not(feature = "query"))]
            Some(path) if is_columnar(Some(path)) => {
                let _ = lists;
                Err(Failure::Environment(format!(
                    "{}: this flowlane was built without Parquet and Arrow output; build it with `--features query`",
                    path.display()
                )))
            }
            path => {
                let mut output = Output::create(path)?;
                output.text(&verdicts.head())?;
                Ok(Self::Text(output))
            }
        }
    }

    pub(super) fn write(&mut self, buffer: &VerdictBuffer) -> Result<(), Failure> {
        match self {
            Self::Text(output) => output.text(&buffer.text),
            #[cfg(feature = "query")]
            Self::Columnar(file) => file.write(buffer),
        }
    }

    /// Completes the output; `tail` follows all text.
    pub(super) fn finish(self, tail: &str) -> Result<(), Failure> {
        match self {
            Self::Text(mut output) => {
                output.text(tail)?;
                output.finish()
            }
            #[cfg(feature = "query")]
            Self::Columnar(file) => file.finish(),
        }
    }
}
