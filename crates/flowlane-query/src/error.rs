use datafusion::error::DataFusionError;

/// Why a query has no answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum QueryError {
    /// A file cannot be used.
    #[error("{name}: {what}")]
    File {
        /// Its name.
        name: String,
        /// Why.
        what: String,
    },
    /// Nothing is called so, or nothing in it is a capture.
    #[error("{name}: there is no capture here (.pcap, .pcapng, .cap, perhaps packed: .gz, .zst)")]
    NoCaptures {
        /// A file, folder or pattern.
        name: String,
    },
    /// There is no table `packets`.
    #[error(
        "`packets` are the captures that stand behind the query, and there are none; or name them in it: FROM 'trace.pcap'"
    )]
    NoPackets,
    /// Lines of rules or routes are wrong.
    #[error("{0}")]
    Lines(String),
    /// The engine refuses the query, or failed.
    #[error("{}", engine(.0))]
    Engine(#[from] DataFusionError),
}

impl QueryError {
    /// Whether the query itself, or what it names, is wrong, and not the machine.
    pub fn is_of_input(&self) -> bool {
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

/// What the engine says, without the layers that it has come through.
fn engine(error: &DataFusionError) -> String {
    let message = error.find_root().message().into_owned();
    let text = message.split("\n\nbacktrace:").next().unwrap_or_default().trim();
    match error.find_root() {
        DataFusionError::ResourcesExhausted(_) => format!("{text}; --memory-max allows more"),
        // Columns of text, of CSV say, beside columns of addresses.
        _ if text.contains("Cannot cast string") || text.contains("Cannot infer common argument type") => {
            format!(
                "{text}\nwhere an address is compared with a column of text, write address(nw_src) = text"
            )
        }
        _ => text.to_owned(),
    }
}
