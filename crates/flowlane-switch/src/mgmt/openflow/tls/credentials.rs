//! The switch's private key and certificate, and the authorities of its peers: read from files, and again when these change.

use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, verify_server_cert_signed_by_trust_anchor};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::{NoServerSessionStorage, ParsedCertificate, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, InconsistentKeys, RootCertStore, ServerConfig,
    SignatureScheme,
};

use super::bootstrap;
use super::session::{Handshake, Side};

/// No key or certificate is longer; a bundle of all authorities of the web has a quarter.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// The files of a switch's TLS, in PEM format.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TlsFiles {
    /// The switch's private key.
    pub private_key: PathBuf,
    /// The switch's certificate, and those between it and its authority.
    pub certificate: PathBuf,
    /// The authorities of the peers.
    pub ca_certificate: PathBuf,
    /// Where that file is missing, the first peer that the switch connects to is believed, and its authority is kept there.
    pub bootstraps: bool,
}

/// One of the [`TlsFiles`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TlsFile {
    /// The switch's private key.
    PrivateKey,
    /// The switch's certificate.
    Certificate,
    /// The authorities of the peers.
    CaCertificate,
}

impl TlsFile {
    const ALL: [Self; 3] = [Self::PrivateKey, Self::Certificate, Self::CaCertificate];

    fn path(self, files: &TlsFiles) -> &Path {
        match self {
            Self::PrivateKey => &files.private_key,
            Self::Certificate => &files.certificate,
            Self::CaCertificate => &files.ca_certificate,
        }
    }
}

/// A reason for which a file cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsProblem {
    /// The system refuses to read it.
    #[error(transparent)]
    Unreadable(#[from] io::Error),
    /// It is longer than keys and certificates are.
    #[error("the file has more than {FILE_BYTES_MAX} bytes")]
    TooLong,
    /// It has no private key.
    #[error("the file has no private key in PEM format")]
    NoKey,
    /// Its private key is encrypted.
    #[error("the private key is encrypted; the switch reads it without a passphrase")]
    EncryptedKey,
    /// It has no certificate.
    #[error("the file has no certificate in PEM format")]
    NoCertificate,
    /// It is not what its first line says.
    #[error("the file is malformed: {0}")]
    Malformed(String),
    /// The certificate is for another private key.
    #[error("the certificate does not fit the private key")]
    KeyMismatch,
    /// A certificate, or all of them where there are several authorities, may not be used any more.
    #[error("the certificate has expired")]
    Expired,
    /// A certificate may not be used yet.
    #[error("the certificate is not valid yet")]
    NotValidYet,
}

/// An error of a file.
#[derive(Debug, thiserror::Error)]
#[error("{}: {problem}", path.display())]
pub struct TlsError {
    /// Which one.
    pub file: TlsFile,
    /// Its path.
    pub path: PathBuf,
    /// The reason.
    pub problem: TlsProblem,
}

impl TlsFiles {
    /// Reads and checks the files.
    ///
    /// # Errors
    /// The first that cannot be used.
    pub fn check(&self) -> Result<(), TlsError> {
        Loaded::read(self, UnixTime::now()).map(|_| ())
    }

    /// Returns whether the authority is still to be learned from a peer.
    fn is_to_bootstrap(&self) -> bool {
        let missing = |error: io::Error| error.kind() == io::ErrorKind::NotFound;
        self.bootstraps && std::fs::metadata(&self.ca_certificate).err().is_some_and(missing)
    }

    fn failed(&self, file: TlsFile) -> impl Fn(TlsProblem) -> TlsError {
        move |problem| TlsError { file, path: file.path(self).to_owned(), problem }
    }

    fn stamps(&self) -> Stamps {
        TlsFile::ALL.map(|file| {
            let metadata = std::fs::metadata(file.path(self)).ok()?;
            Some((metadata.ino(), metadata.len(), metadata.mtime(), metadata.mtime_nsec()))
        })
    }
}

/// The inode, length and time of modification of each file.
type Stamps = [Option<(u64, u64, i64, i64)>; 3];

/// Reads a file whose length is bounded.
fn read(path: &Path) -> Result<Vec<u8>, TlsProblem> {
    let mut bytes = Vec::new();
    std::fs::File::open(path)?.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(TlsProblem::TooLong);
    }
    Ok(bytes)
}

fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsProblem> {
    let bytes = read(path)?;
    let is_encrypted = || bytes.windows(9).any(|word| word == b"ENCRYPTED");
    PrivateKeyDer::from_pem_slice(&bytes).map_err(|error| match error {
        _ if is_encrypted() => TlsProblem::EncryptedKey,
        pem::Error::NoItemsFound => TlsProblem::NoKey,
        other => TlsProblem::Malformed(other.to_string()),
    })
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsProblem> {
    let all: Result<Vec<_>, pem::Error> = CertificateDer::pem_slice_iter(&read(path)?).collect();
    let all = all.map_err(|error| TlsProblem::Malformed(error.to_string()))?;
    if all.is_empty() { Err(TlsProblem::NoCertificate) } else { Ok(all) }
}

/// Checks the form of a certificate, and the time in which it may be used.
fn check_validity(certificate: &CertificateDer<'_>, now: UnixTime) -> Result<(), TlsProblem> {
    let parsed = ParsedCertificate::try_from(certificate);
    let parsed = parsed.map_err(|error| TlsProblem::Malformed(error.to_string()))?;
    let algorithms = ring::default_provider().signature_verification_algorithms.all;
    // The time comes before the issuer, which this store does not have.
    match verify_server_cert_signed_by_trust_anchor(&parsed, &RootCertStore::empty(), &[], now, algorithms) {
        Err(rustls::Error::InvalidCertificate(
            CertificateError::Expired | CertificateError::ExpiredContext { .. },
        )) => Err(TlsProblem::Expired),
        Err(rustls::Error::InvalidCertificate(
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. },
        )) => Err(TlsProblem::NotValidYet),
        _ => Ok(()),
    }
}

/// Credentials as they were read.
#[derive(Debug)]
struct Loaded {
    stamps: Stamps,
    /// The authorities that were valid; none where the first peer is to be believed.
    authorities: Vec<CertificateDer<'static>>,
    /// Without authorities, no peer may connect to the switch.
    server: Option<Arc<ServerConfig>>,
    client: Arc<ClientConfig>,
}

impl Loaded {
    fn read(files: &TlsFiles, now: UnixTime) -> Result<Self, TlsError> {
        // Files that change meanwhile are read again.
        let stamps = files.stamps();
        let provider = Arc::new(ring::default_provider());
        let (of_key, of_certificate, of_ca) = (
            files.failed(TlsFile::PrivateKey),
            files.failed(TlsFile::Certificate),
            files.failed(TlsFile::CaCertificate),
        );
        let malformed = |error: rustls::Error| TlsProblem::Malformed(error.to_string());
        let authorities = match files.is_to_bootstrap() {
            true => Vec::new(),
            false => certificates(&files.ca_certificate).and_then(|all| valid(all, now)).map_err(&of_ca)?,
        };
        let key = private_key(&files.private_key).map_err(&of_key)?;
        let signing = provider.key_provider.load_private_key(key.clone_key());
        let signing = signing.map_err(malformed).map_err(&of_key)?;
        let chain = certificates(&files.certificate).map_err(&of_certificate)?;
        check_validity(&chain[0], now).map_err(&of_certificate)?;
        match CertifiedKey::new(chain.clone(), signing).keys_match() {
            Ok(()) | Err(rustls::Error::InconsistentKeys(InconsistentKeys::Unknown)) => {}
            Err(rustls::Error::InconsistentKeys(_)) => return Err(of_certificate(TlsProblem::KeyMismatch)),
            Err(error) => return Err(of_certificate(malformed(error))),
        }
        let mut roots = RootCertStore::empty();
        for authority in &authorities {
            roots.add(authority.clone()).map_err(malformed).map_err(&of_ca)?;
        }
        let (server, client) =
            configs(&provider, Arc::new(roots), chain, key).map_err(malformed).map_err(&of_certificate)?;
        Ok(Self { stamps, authorities, server, client })
    }
}

/// Leaves out certificates that have expired; an error where none is left.
fn valid(
    all: Vec<CertificateDer<'static>>,
    now: UnixTime,
) -> Result<Vec<CertificateDer<'static>>, TlsProblem> {
    let mut left = Vec::new();
    let mut refused = TlsProblem::NoCertificate;
    for certificate in all {
        match check_validity(&certificate, now) {
            Ok(()) => left.push(certificate),
            Err(problem @ (TlsProblem::Expired | TlsProblem::NotValidYet)) => refused = problem,
            Err(problem) => return Err(problem),
        }
    }
    if left.is_empty() { Err(refused) } else { Ok(left) }
}

/// The configurations of the side that accepts connections, and of the side that connects.
fn configs(
    provider: &Arc<CryptoProvider>,
    roots: Arc<RootCertStore>,
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
) -> Result<(Option<Arc<ServerConfig>>, Arc<ClientConfig>), rustls::Error> {
    let server = match roots.is_empty() {
        true => None,
        false => Some(Arc::new(server_config(provider, roots.clone(), chain.clone(), key.clone_key())?)),
    };
    let mut client = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AnyName { roots, provider: provider.clone() }))
        .with_client_auth_cert(chain, key)?;
    client.resumption = Resumption::disabled();
    Ok((server, Arc::new(client)))
}

fn server_config(
    provider: &Arc<CryptoProvider>,
    roots: Arc<RootCertStore>,
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
) -> Result<ServerConfig, rustls::Error> {
    let clients = WebPkiClientVerifier::builder_with_provider(roots, provider.clone());
    let clients = clients.build().map_err(|error| rustls::Error::General(error.to_string()))?;
    let mut server = ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()?
        .with_client_cert_verifier(clients)
        .with_single_cert(chain, key)?;
    server.session_storage = Arc::new(NoServerSessionStorage {});
    server.send_tls13_tickets = 0;
    Ok(server)
}

/// Accepts certificates of the authorities, whatever host they name; without authorities, those of any authority whose certificate
/// the peer sends.
#[derive(Debug)]
struct AnyName {
    roots: Arc<RootCertStore>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for AnyName {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let certificate = ParsedCertificate::try_from(certificate)?;
        let algorithms = self.provider.signature_verification_algorithms.all;
        let mut of_peer = RootCertStore::empty();
        let roots = match intermediates {
            _ if !self.roots.is_empty() => &*self.roots,
            [.., last] => {
                of_peer.add(last.clone().into_owned())?;
                &of_peer
            }
            [] => {
                let problem =
                    "the peer does not send the certificate of its authority, which is to be learned";
                return Err(rustls::Error::General(problem.to_owned()));
            }
        };
        verify_server_cert_signed_by_trust_anchor(&certificate, roots, intermediates, now, algorithms)?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// The credentials of all connections.
#[derive(Debug)]
pub(crate) struct Credentials {
    files: TlsFiles,
    loaded: Mutex<Loaded>,
}

impl Credentials {
    pub(crate) fn read(files: &TlsFiles) -> Result<Arc<Self>, TlsError> {
        let loaded = Mutex::new(Loaded::read(files, UnixTime::now())?);
        Ok(Arc::new(Self { files: files.clone(), loaded }))
    }

    /// Begins a session with the credentials that the files have now. Where these cannot be used, for example because only one of
    /// two is renewed yet, those from before are.
    ///
    /// # Errors
    /// Authorities that have expired since.
    pub(crate) fn session(&self, side: Side) -> io::Result<Handshake> {
        let (server, client) = self.current(UnixTime::now()).map_err(io::Error::other)?;
        let is_bootstrap = server.is_none();
        let connection = match side {
            Side::Server => {
                let unknown = "the peers' authority is not known yet: no peer may connect";
                let server = server.ok_or_else(|| io::Error::other(unknown))?;
                rustls::ServerConnection::new(server).map(rustls::Connection::Server)
            }
            Side::Client(to) => {
                let name = ServerName::IpAddress(to.into());
                rustls::ClientConnection::new(client, name).map(rustls::Connection::Client)
            }
        };
        let connection = connection.map_err(io::Error::other)?;
        Ok(Handshake { connection, is_bootstrap })
    }

    /// Keeps the authority of the first peer, if it was to be believed.
    ///
    /// # Errors
    /// The connection, which is not authenticated, has served its purpose, or the authority cannot be kept.
    pub(crate) fn bootstrap(&self, peer: &Handshake) -> io::Result<()> {
        if !peer.is_bootstrap {
            return Ok(());
        }
        let path = &self.files.ca_certificate;
        // The verifier has accepted it as the last of several.
        if let Some(authority) = peer.certificates().last() {
            bootstrap::keep(path, authority)
                .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))?;
        }
        let learned = format!("{} has the authority of the peer now: connecting again", path.display());
        Err(io::Error::new(io::ErrorKind::ConnectionReset, learned))
    }

    fn lock(&self) -> MutexGuard<'_, Loaded> {
        self.loaded.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn current(&self, now: UnixTime) -> Result<(Option<Arc<ServerConfig>>, Arc<ClientConfig>), TlsError> {
        let mut loaded = self.lock();
        let is_invalid =
            |loaded: &Loaded| loaded.authorities.iter().any(|one| check_validity(one, now).is_err());
        if self.files.stamps() != loaded.stamps || is_invalid(&loaded) {
            // With authorities once, it believes no peer any more.
            let bootstraps = self.files.bootstraps && loaded.authorities.is_empty();
            match Loaded::read(&TlsFiles { bootstraps, ..self.files.clone() }, now) {
                Ok(new) => *loaded = new,
                Err(error) if is_invalid(&loaded) => return Err(error),
                Err(_) => {}
            }
        }
        Ok((loaded.server.clone(), loaded.client.clone()))
    }
}

#[cfg(test)]
mod tests;
