//! The page of the configuration: every key, from its schema.

use serde_json::Value;

use super::page::{Block, Page};
use crate::arguments::AFTER_HELP;

/// Columns of a table of keys.
const KEYS: &[&str] = &["key", "value", "default", "meaning"];

/// The sections that come first; the others follow in the order of their names.
const FIRST: [&str; 6] = ["switch", "port", "table", "meter", "groups", "openflow"];

/// A configuration of the sections that most have.
const EXAMPLE: &str = "[switch]
workers = 2

[[port]]
number = 1
name = \"lan\"
open = \"afpacket:eth0\"
tag = 10                      # an access port of VLAN 10

[[port]]
number = 2
name = \"uplink\"
open = \"afxdp:eth1\"           # a trunk, since it has no tag

[[meter]]
number = 1
rate_kbps = 10000

[[table]]
number = 0
rules = [
  \"priority=100,udp,tp_dst=53,actions=meter:1,normal\",
  \"priority=0,actions=normal\",
]";

/// `flowlane.toml(5)`, from the schema of the configuration.
pub(super) fn page(schema: &Value) -> Page {
    let mut writer = Writer { schema, blocks: Vec::new() };
    writer.text("A switch is configured by one file in TOML, which `flowlane switch run FILE` reads. `flowlane switch check FILE` finds mistakes without opening a port, and `flowlane switch schema` prints the schema that this page is made from, for editors.");
    writer.blocks.push(Block::Code(EXAMPLE.to_owned()));
    writer.text("A section in two brackets may be there several times. Keys without a default are left out unless they are wanted; those that are required are not. Rules are described in `flowlane-flows(7)`.");
    writer.sections("", schema);
    writer.blocks.push(Block::Heading("Files".to_owned()));
    writer.text("Files that a configuration names are found beside it. The socket of a running switch is in `$RUNTIME_DIRECTORY` for a service of the system, else in `/run/flowlane`, or in `$XDG_RUNTIME_DIR/flowlane` where the switch does not run as root; the kernels that `flowlane tune` selected are in `$XDG_CONFIG_HOME/flowlane/tune.toml`, or `~/.config/flowlane/tune.toml`.");
    writer.blocks.push(Block::Heading("Exit status".to_owned()));
    let (_, codes) = AFTER_HELP.split_once("Exit codes:\n").expect("the help names them");
    let row = |line: &str| line.trim().split("  ").map(str::to_owned).collect();
    writer.blocks.push(Block::Rows(&["status", "meaning"], codes.lines().map(row).collect()));
    Page {
        name: "flowlane.toml",
        section: 5,
        file: "switch",
        about: "the configuration of a switch",
        blocks: writer.blocks,
    }
}

struct Writer<'a> {
    schema: &'a Value,
    blocks: Vec<Block>,
}

impl<'a> Writer<'a> {
    fn text(&mut self, text: &str) {
        self.blocks.push(Block::Text(text.to_owned()));
    }

    /// Describes the sections among the keys of an object: `prefix` is the name of the object, with a point behind it.
    fn sections(&mut self, prefix: &str, object: &'a Value) {
        let Some(keys) = object["properties"].as_object() else { return };
        let mut keys: Vec<_> = keys.iter().collect();
        keys.sort_by_key(|(key, _)| FIRST.iter().position(|first| first == key).unwrap_or(FIRST.len()));
        for (key, value) in keys {
            let section = self.resolved(value);
            if section["properties"].is_object() {
                self.section(&format!("{prefix}{key}"), is_list(value), about(value), section);
            }
        }
    }

    fn section(&mut self, name: &str, is_list: bool, about_key: String, section: &'a Value) {
        let heading = if is_list { format!("`[[{name}]]`") } else { format!("`[{name}]`") };
        self.blocks.push(Block::Heading(heading));
        let text = if about_key.is_empty() { about(section) } else { about_key };
        self.blocks.push(Block::Text(text));
        let required: Vec<&str> =
            section["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let (mut rows, mut values) = (Vec::new(), Vec::new());
        for (key, value) in section["properties"].as_object().into_iter().flatten() {
            let meant = self.resolved(value);
            if meant["properties"].is_object() {
                continue;
            }
            let default = match required.contains(&key.as_str()) {
                true => "required".to_owned(),
                false => default(value, meant),
            };
            rows.push(vec![format!("`{key}`"), self.kind(value), default, about(value)]);
            let described = described_values(meant);
            if !described.is_empty() {
                values.push((key, described));
            }
        }
        self.blocks.push(Block::Rows(KEYS, rows));
        for (key, described) in values {
            self.blocks.push(Block::Subheading(format!("Values of `{key}`")));
            self.blocks.push(Block::Rows(&["value", "meaning"], described));
        }
        self.sections(&format!("{name}."), section);
    }

    /// The schema of a value, or of the entries of a list, behind references.
    fn resolved(&self, value: &'a Value) -> &'a Value {
        if let Some(name) = value["$ref"].as_str() {
            return self.schema.pointer(name.trim_start_matches('#')).unwrap_or(value);
        }
        if let Some(one) =
            value["anyOf"].as_array().and_then(|all| all.iter().find(|one| one["type"] != "null"))
        {
            return self.resolved(one);
        }
        if is_list(value) { self.resolved(&value["items"]) } else { value }
    }

    /// The values that a key may have.
    fn kind(&self, value: &'a Value) -> String {
        if is_list(value) {
            return format!("list of: {}", self.kind(&value["items"]));
        }
        let meant = self.resolved(value);
        let names = names(meant);
        if !names.is_empty() {
            return names.join(", ");
        }
        let is = |kind: &str| match &meant["type"] {
            Value::Array(kinds) => kinds.iter().any(|one| one == kind),
            one => one == kind,
        };
        let number = |key: &str| meant[key].as_u64();
        match () {
            () if is("boolean") => "`true`, `false`".to_owned(),
            () if is("integer") => match (number("minimum"), number("maximum")) {
                (Some(low), Some(high)) => format!("{low} to {high}"),
                _ => "number".to_owned(),
            },
            () if is("number") => "number".to_owned(),
            () if is("string") => "text".to_owned(),
            () if meant["additionalProperties"].is_object() => {
                format!("table of: {}", self.kind(&meant["additionalProperties"]))
            }
            () => String::new(),
        }
    }
}

fn is_list(value: &Value) -> bool {
    value["items"].is_object()
}

/// The description of a value, in one line.
fn about(value: &Value) -> String {
    value["description"].as_str().unwrap_or("").split_whitespace().collect::<Vec<_>>().join(" ")
}

fn default(value: &Value, meant: &Value) -> String {
    let written = match (&value["default"], &meant["default"]) {
        (Value::Null, Value::Null) => return String::new(),
        (Value::Null, of_kind) => of_kind,
        (own, _) => own,
    };
    format!("`{written}`")
}

/// The names of an enumeration, as code.
fn names(meant: &Value) -> Vec<String> {
    let plain = meant["enum"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let described = meant["oneOf"].as_array().into_iter().flatten();
    let of = |one: &Value| -> Vec<String> {
        let names = one["enum"].as_array().into_iter().flatten().filter_map(Value::as_str);
        one["const"].as_str().into_iter().chain(names).map(str::to_owned).collect()
    };
    plain.map(str::to_owned).chain(described.flat_map(of)).map(|name| format!("`{name}`")).collect()
}

/// The values of an enumeration that say what they are.
fn described_values(meant: &Value) -> Vec<Vec<String>> {
    let all = meant["oneOf"].as_array().into_iter().flatten();
    all.filter_map(|one| Some(vec![format!("`{}`", one["const"].as_str()?), about(one)])).collect()
}
