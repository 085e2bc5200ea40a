//! The section of the controllers that drive the switch by OpenFlow.

use std::collections::BTreeSet;
use std::path::PathBuf;

use flowlane_openflow::Version;

use super::table_numbers;
use crate::mgmt::config::{Config, ConfigError, KeyPath, Source, TableEngine, TableSection, TlsSection};
use crate::mgmt::openflow::{Address, BadAddress, FailMode, TlsFile, TlsFiles};
use crate::port::runtime_folder::runtime_folder;

/// The last table that controllers may use, as in Open vSwitch.
const LAST_TABLE: u8 = 253;

/// The controllers of a switch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OpenflowSetup {
    /// The bridge's name.
    pub bridge: String,
    /// The switch's identifier; without one, it gets a random one.
    pub datapath_id: Option<u64>,
    /// Where controllers connect, or are connected to: the bridge's own socket is the first.
    pub addresses: Vec<Address>,
    /// The socket of copies of messages.
    pub snoop: PathBuf,
    /// The versions that it speaks; at least one.
    pub versions: Vec<Version>,
    /// The behaviour without controllers.
    pub fail_mode: FailMode,
    /// The files of TLS.
    pub tls: Option<TlsFiles>,
}

/// Adds the tables that controllers may use and the configuration does not have. Their rules change all the time.
pub(super) fn add_tables(config: &mut Config) {
    if config.openflow.is_none() {
        return;
    }
    let there: BTreeSet<u8> = table_numbers(config).map(|(number, _)| number).collect();
    let absent = (0..=LAST_TABLE).filter(|number| !there.contains(number));
    config.table.extend(absent.map(TableSection::of_controllers));
}

/// Reads the section.
pub(super) fn read(config: &Config, source: &Source) -> Result<Option<OpenflowSetup>, ConfigError> {
    let Some(section) = &config.openflow else { return Ok(None) };
    let at = KeyPath::of("openflow");
    let is_name = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let bridge = section.bridge.clone();
    if bridge.is_empty() || bridge.starts_with('.') || !bridge.chars().all(is_name) {
        let problem = format!("`{bridge}` is no name of a bridge: letters, digits, `-`, `_` and `.` are");
        return Err(source.error(&at.key("bridge"), problem, ""));
    }
    let datapath_id = match section.datapath_id.as_deref() {
        None => None,
        Some(text) => {
            let digits = text.strip_prefix("0x").unwrap_or(text);
            let id = u64::from_str_radix(digits, 16).ok().filter(|_| digits.len() <= 16);
            let problem = || format!("`{text}` is no identifier: up to 16 hexadecimal digits are");
            Some(id.ok_or_else(|| source.error(&at.key("datapath_id"), problem(), ""))?)
        }
    };
    let own: PathBuf = runtime_folder().join(format!("{bridge}.mgmt"));
    let snoop = own.with_file_name(format!("{bridge}.snoop"));
    let mut addresses = vec![Address::ListenUnix(own)];
    let tls = section.tls.as_ref().map(|tls| read_tls(tls, &at.key("tls"), source)).transpose()?;
    for (n, text) in section.controllers.iter().enumerate() {
        let at = at.key("controllers").item(n);
        let address: Result<Address, BadAddress> = text.parse();
        let address = address.map_err(|error| source.error(&at, error.to_string(), ""))?;
        if address.has_tls() && tls.is_none() {
            let problem = format!("`{text}` needs a private key, a certificate and a certificate authority");
            let help =
                "name their files in a section `[openflow.tls]`: private_key, certificate, ca_certificate";
            return Err(source.error(&at, problem, help));
        }
        addresses.push(address);
    }
    let versions = read_versions(&section.protocols).map_err(|name| {
        let names = Version::ALL.map(Version::name).join(", ");
        source.error(&at.key("protocols"), format!("`{name}` is no version; there are {names}"), "")
    })?;
    let fail_mode = section.fail_mode;
    if fail_mode == FailMode::Standalone && !has_changing_first_table(config) {
        let problem =
            "`standalone` forwards by a rule of table 0, which must be a table of rules on no device";
        return Err(source.error(&at.key("fail_mode"), problem.to_owned(), ""));
    }
    Ok(Some(OpenflowSetup { bridge, datapath_id, addresses, snoop, versions, fail_mode, tls }))
}

/// Reads and checks the files of TLS.
fn read_tls(section: &TlsSection, at: &KeyPath, source: &Source) -> Result<TlsFiles, ConfigError> {
    let TlsSection { private_key, certificate, ca_certificate } = section;
    let [private_key, certificate, ca_certificate] =
        [private_key, certificate, ca_certificate].map(|path| source.folder().join(path));
    let files = TlsFiles { private_key, certificate, ca_certificate, bootstraps: false };
    files.check().map_err(|error| {
        let key = match error.file {
            TlsFile::PrivateKey => "private_key",
            TlsFile::Certificate => "certificate",
            TlsFile::CaCertificate => "ca_certificate",
        };
        source.error(&at.key(key), error.to_string(), "")
    })?;
    Ok(files)
}

/// Returns whether rules of the first table can change while the switch runs.
fn has_changing_first_table(config: &Config) -> bool {
    let mut first = config.table.iter().filter(|table| table.number == 0);
    first.any(|table| table.engine != TableEngine::Gpu)
}

/// Reads the names of versions: all without any.
fn read_versions(names: &[String]) -> Result<Vec<Version>, String> {
    if names.is_empty() {
        return Ok(Version::ALL.to_vec());
    }
    let named = |name: &String| Version::ALL.into_iter().find(|version| version.name() == name);
    names.iter().map(|name| named(name).ok_or_else(|| name.clone())).collect()
}

#[cfg(test)]
mod tests {
    use flowlane_openflow::Version;

    use super::super::Setup;
    use super::FailMode;

    #[test]
    fn a_switch_with_controllers_has_all_tables_and_their_addresses() {
        let text = "[openflow]\ndatapath_id = \"00002320\"\ncontrollers = [\"ptcp:6653:127.0.0.1\"]\n[[table]]\nnumber = 7\n";
        let setup = Setup::parse(text).unwrap();
        assert_eq!(setup.tables(), 254);
        let openflow = setup.openflow().unwrap().unwrap();
        assert_eq!((openflow.datapath_id, openflow.addresses.len()), (Some(0x2320), 2));
        assert_eq!(openflow.versions, Version::ALL);
        let one = Setup::parse("[openflow]\nprotocols = [\"OpenFlow10\"]\n").unwrap();
        assert_eq!(one.openflow().unwrap().unwrap().versions, [Version::OpenFlow10]);
        let alone = Setup::parse("[openflow]\nfail_mode = \"standalone\"\n").unwrap();
        assert_eq!(alone.openflow().unwrap().unwrap().fail_mode, FailMode::Standalone);
        assert_eq!(one.openflow().unwrap().unwrap().fail_mode, FailMode::Secure);
        assert_eq!(Setup::parse("[[table]]\nnumber = 0\n").unwrap().openflow().unwrap(), None);
        for (key, wrong) in [
            ("bridge", "\"a/b\""),
            ("datapath_id", "\"xyz\""),
            ("controllers", "[\"ptcp\"]"),
            ("protocols", "[\"OpenFlow12\"]"),
            ("fail_mode", "\"standalone\"\n[[route_table]]\nnumber = 0\nroutes = []"),
        ] {
            let setup = Setup::parse(&format!("[openflow]\n{key} = {wrong}\n")).unwrap();
            assert!(setup.openflow().is_err(), "{key}");
        }
    }
}
