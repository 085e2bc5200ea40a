//! TLS of connections, as Open vSwitch has it: `pssl:` and `ssl:`.
//!
//! Both sides have a certificate, and accept the other's where it chains to their certificate authority. Names of hosts are not
//! compared with certificates: an authority that signs for controllers signs for nothing else. Sessions are not resumed, so that each
//! connection presents its certificate.

mod credentials;
mod session;

pub use credentials::{TlsError, TlsFile, TlsFiles, TlsProblem};

pub(super) use credentials::Credentials;
pub(super) use session::{Session, Side};
