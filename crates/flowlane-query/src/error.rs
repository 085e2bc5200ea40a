use datafusion::error::DataFusionError;

/// An error of a query.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum QueryError {
    /// An unusable file.
    #[error("{name}: {what}")]
    File {
        /// Name of the file.
        name: String,
        /// Reason.
        what: String,
    },
    /// No capture of this name.
    #[error("{name}: no captures found (.pcap, .pcapng, .cap, optionally compressed: .gz, .zst)")]
    NoCaptures {
        /// A file, directory or pattern.
        name: String,
    },
    /// No captures for the table `packets`.
    #[error("no captures for the table `packets`; give them after the query, or in it: FROM 'trace.pcap'")]
    NoPackets,
    /// Lines of rules or routes that do not parse.
    #[error("{0}")]
    Lines(String),
    /// An error of the SQL engine.
    #[error("{}", engine(.0))]
    Engine(#[from] DataFusionError),
}

impl QueryError {
    /// Returns whether the query or its input is wrong, rather than the environment.
    pub fn is_input_error(&self) -> bool {
        match self {
            Self::Engine(error) => !matches!(
                error.find_root(),
                DataFusionError::ResourcesExhausted(_)
                    | DataFusionError::IoError(_)
                    | DataFusionError::Internal(_)
            ),
            _ => true,
        }
    }
}

/// Returns the engine's message, without its layers of context.
fn engine(error: &DataFusionError) -> String {
    let message = error.find_root().message().into_owned();
    let text = message.split("\n\nbacktrace:").next().unwrap_or_default().trim();
    match error.find_root() {
        DataFusionError::ResourcesExhausted(_) => format!("{text}; raise --memory-max"),
        // Text columns, for example of CSV files, compared with address columns.
        _ if text.contains("Cannot cast string") || text.contains("Cannot infer common argument type") => {
            format!("{text}\nto compare an address with a text column, write address(nw_src) = text")
        }
        _ => text.to_owned(),
    }
}
