//! TLS of connections, as Open vSwitch has it: `pssl:` and `ssl:`.
//!
//! Both sides have a certificate, and accept the other's where it chains to their certificate authority. Names of hosts are not
//! compared with certificates: an authority that signs for controllers signs for nothing else. Sessions are not resumed, so that each
//! connection presents its certificate. Where the switch has no authorities yet, and is to learn them, it believes the first peer that it
//! connects to (`--bootstrap-ca-cert`).

mod bootstrap;
mod credentials;
mod session;

pub use credentials::{TlsError, TlsFile, TlsFiles, TlsProblem};

pub(in crate::mgmt) use credentials::Credentials;
pub(super) use session::Session;
pub(in crate::mgmt) use session::Side;
