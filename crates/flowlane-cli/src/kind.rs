//! Kinds of text files, so that a file of another kind gets one error that names it, instead of one for each line.

use std::net::IpAddr;

/// Kind of a text file, guessed from its lines.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// The output of `iptables-save`.
    Iptables,
    /// The output of `nft -j list ruleset`.
    NftJson,
    /// The output of `nft list ruleset`.
    NftText,
    /// A configuration of Cisco IOS with access lists.
    Cisco,
    /// A header trace of ClassBench.
    Trace,
    /// Filters of ClassBench.
    Filters,
    /// Flows as `ovs-ofctl` reads them.
    Flows,
    /// A configuration of a switch.
    Toml,
    /// Routes.
    Routes,
}

/// Lines that are looked at.
const LINES: usize = 64;

impl Kind {
    /// Guesses the kind of a text.
    pub(crate) fn of(text: &str) -> Option<Self> {
        if text.trim_start().starts_with('{') {
            let head = &text[..text.floor_char_boundary(512)];
            return head.contains("\"nftables\"").then_some(Self::NftJson);
        }
        let lines = text.lines().map(str::trim);
        let lines: Vec<&str> =
            lines.filter(|line| !line.is_empty() && !line.starts_with(['#', '!'])).take(LINES).collect();
        let first = lines.first()?;
        let any = |is: &dyn Fn(&str) -> bool| lines.iter().any(|line| is(line));
        // A few lines may be wrong.
        let most =
            |is: &dyn Fn(&str) -> bool| 4 * lines.iter().filter(|line| is(line)).count() >= 3 * lines.len();
        let kinds: [(Self, &dyn Fn() -> bool); 8] = [
            (Self::Iptables, &|| first.starts_with('*') && any(&|line| line.starts_with([':', '-']))),
            (Self::NftText, &|| first.starts_with("table ") && first.ends_with('{')),
            (Self::Toml, &|| any(&|line| line.starts_with('[') && line.ends_with(']'))),
            (Self::Cisco, &|| {
                any(&|line| line.starts_with("access-list ") || line.starts_with("ip access-list "))
            }),
            (Self::Filters, &|| most(&|line| line.starts_with('@'))),
            (Self::Flows, &|| most(&|line| line.contains("actions="))),
            (Self::Trace, &|| most(&is_header)),
            (Self::Routes, &|| most(&is_route)),
        ];
        kinds.into_iter().find(|(_, is)| is()).map(|(kind, _)| kind)
    }

    /// Names the kind, as a predicate of a file.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Iptables => "the output of iptables-save",
            Self::NftJson => "the output of nft -j list ruleset",
            Self::NftText => "the output of nft list ruleset",
            Self::Cisco => "a configuration of Cisco IOS",
            Self::Trace => "a header trace of ClassBench",
            Self::Filters => "filters of ClassBench",
            Self::Flows => "flows",
            Self::Toml => "the configuration of a switch",
            Self::Routes => "a list of routes",
        }
    }

    /// Suggests the command for a file of this kind.
    pub(crate) fn help(self, file: &str) -> String {
        match self {
            Self::Iptables => format!("convert it to flows: flowlane rules convert {file} --from iptables"),
            Self::NftJson => format!("convert it to flows: flowlane rules convert {file} --from nft"),
            Self::NftText => {
                "convert it to flows: nft -j list ruleset > rules.json; flowlane rules convert rules.json --from nft".to_owned()
            }
            Self::Cisco => format!("convert it to flows: flowlane rules convert {file} --from cisco"),
            Self::Trace => "packets are given by --trace".to_owned(),
            Self::Filters | Self::Flows => {
                format!("rules are given by --rules; in a configuration, by rules_file = \"{file}\" of a [[table]]")
            }
            Self::Toml => format!("run it with: flowlane switch run {file}"),
            Self::Routes => {
                format!("routes are given by --routes; in a configuration, by routes_file = \"{file}\" of a [[route_table]]")
            }
        }
    }
}

/// Returns whether a line is a header of a trace: five to seven numbers.
fn is_header(line: &str) -> bool {
    let numbers: Vec<bool> = line.split_whitespace().map(|word| word.parse::<u32>().is_ok()).collect();
    (5..=7).contains(&numbers.len()) && numbers.iter().all(|is| *is)
}

/// Returns whether a line begins with a prefix or `default`.
fn is_route(line: &str) -> bool {
    let word = line.split_whitespace().next().unwrap_or_default();
    let (address, length) = word.split_once('/').unwrap_or((word, "0"));
    word == "default" || address.parse::<IpAddr>().is_ok() && length.parse::<u8>().is_ok()
}
