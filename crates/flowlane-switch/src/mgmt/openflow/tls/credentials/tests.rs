use std::process::{Command, Stdio};
use std::time::Duration;

use super::*;

/// A folder with a key and a certificate that signs itself; `None` where the `openssl` command is missing.
fn self_signed() -> Option<(tempfile::TempDir, TlsFiles)> {
    let folder = tempfile::tempdir().unwrap();
    let made = Command::new("openssl")
        .args([
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:P-256",
            "-nodes",
            "-days",
            "30",
        ])
        .args(["-subj", "/CN=test", "-keyout", "key", "-out", "certificate"])
        .current_dir(&folder)
        .stderr(Stdio::null())
        .status();
    let Ok(status) = made else {
        println!("skipped: there is no `openssl`");
        return None;
    };
    assert!(status.success());
    let [private_key, certificate] = ["key", "certificate"].map(|name| folder.path().join(name));
    let ca_certificate = certificate.clone();
    Some((folder, TlsFiles { private_key, certificate, ca_certificate, bootstraps: false }))
}

#[test]
fn an_authority_that_expires_while_the_switch_runs_is_not_used_any_more() {
    let Some((_folder, files)) = self_signed() else { return };
    let credentials = Credentials::read(&files).unwrap();
    let now = UnixTime::now();
    assert!(credentials.current(now).is_ok());
    let later = UnixTime::since_unix_epoch(Duration::from_secs(now.as_secs() + 31 * 86_400));
    let refused = credentials.current(later).unwrap_err();
    assert_eq!(refused.file, TlsFile::CaCertificate);
    assert!(matches!(refused.problem, TlsProblem::Expired), "{refused}");
    assert!(credentials.current(now).is_ok());
}

#[test]
fn files_that_are_removed_leave_the_former_credentials() {
    let Some((folder, files)) = self_signed() else { return };
    let credentials = Credentials::read(&files).unwrap();
    drop(folder);
    assert!(credentials.current(UnixTime::now()).is_ok());
}
