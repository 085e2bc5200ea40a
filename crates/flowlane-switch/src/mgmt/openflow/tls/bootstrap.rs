//! The file of an authority that was learned from a peer.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustls::pki_types::CertificateDer;

/// The alphabet of base64 (RFC 4648, section 4).
const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
/// Characters in a line (RFC 7468, section 2).
const LINE: usize = 64;

/// Writes a certificate to a file that is not there yet.
///
/// # Errors
/// Those of the file.
pub(super) fn keep(path: &Path, certificate: &CertificateDer<'_>) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o444).open(path)?;
    let written = file.write_all(pem(certificate).as_bytes()).and_then(|()| file.sync_all());
    if written.is_err() {
        // A part of a certificate would never be replaced.
        _ = std::fs::remove_file(path);
    }
    written
}

/// A certificate as text (RFC 7468).
fn pem(certificate: &[u8]) -> String {
    let mut text = String::from("-----BEGIN CERTIFICATE-----");
    for (number, three) in certificate.chunks(3).enumerate() {
        if number % (LINE / 4) == 0 {
            text.push('\n');
        }
        let byte = |at: usize| u32::from(three.get(at).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for at in 0..4 {
            let is_padding = at > three.len();
            text.push(if is_padding { '=' } else { ALPHABET[(bits >> (18 - 6 * at) & 63) as usize].into() });
        }
    }
    text + "\n-----END CERTIFICATE-----\n"
}

#[cfg(test)]
mod tests {
    use rustls::pki_types::pem::PemObject;

    use super::*;

    #[test]
    fn texts_are_read_as_the_certificates_that_they_are_made_of() {
        for len in 1..400usize {
            let bytes: Vec<u8> = (0..len).map(|at| (at * at * 31 + len * 7) as u8).collect();
            let text = pem(&bytes);
            assert!(text.lines().all(|line| line.len() <= LINE), "{text}");
            assert_eq!(*CertificateDer::from_pem_slice(text.as_bytes()).unwrap(), bytes[..]);
        }
    }

    #[test]
    fn a_file_that_is_there_is_not_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ca.pem");
        keep(&path, &CertificateDer::from(vec![1, 2, 3])).unwrap();
        let refused = keep(&path, &CertificateDer::from(vec![4])).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::AlreadyExists);
        assert!(std::fs::read_to_string(&path).unwrap().contains("\nAQID\n"));
    }
}
