//! Certificates for tests, made by the `openssl` command.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The time in which a certificate may be used.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Time {
    Now,
    Past,
}

/// A certificate authority, in a folder of its own.
pub(crate) struct Authority {
    folder: PathBuf,
}

/// A private key and its certificate.
#[derive(Clone)]
pub(crate) struct Identity {
    pub(crate) key: PathBuf,
    pub(crate) certificate: PathBuf,
}

/// Returns whether certificates can be made; says so where they cannot.
pub(crate) fn is_possible() -> bool {
    let is_there = Command::new("openssl").arg("version").stdout(Stdio::null()).status().is_ok();
    if !is_there {
        println!("skipped: there is no `openssl`");
    }
    is_there
}

impl Authority {
    pub(crate) fn new(folder: &Path, time: Time) -> Self {
        std::fs::create_dir(folder).unwrap();
        let own = Self { folder: folder.to_owned() };
        let config = format!(
            "[req]\ndistinguished_name = name\n[name]\n[ca]\ndefault_ca = own\n[own]\ndatabase = {0}/database\n\
             new_certs_dir = {0}\nrand_serial = yes\ndefault_md = sha256\npolicy = any\nunique_subject = no\n\
             [any]\ncommonName = supplied\n[authority]\nbasicConstraints = critical, CA:TRUE\n\
             [peer]\nbasicConstraints = CA:FALSE\n",
            folder.display()
        );
        std::fs::write(folder.join("config"), config).unwrap();
        std::fs::write(folder.join("database"), "").unwrap();
        // Authorities of the same name would be the same one with another key.
        own.request("authority", &format!("authority {}", folder.display()).replace('/', "."));
        let key = own.file("authority", "key");
        own.sign("authority", time, &["-selfsign", "-extensions", "authority", "-keyfile", &key]);
        own
    }

    /// The authority's certificate.
    pub(crate) fn certificate(&self) -> PathBuf {
        self.file("authority", "pem").into()
    }

    /// Makes a key and signs its certificate.
    pub(crate) fn issue(&self, name: &str, time: Time) -> Identity {
        self.request(name, name);
        let (key, certificate) = (self.file("authority", "key"), self.file("authority", "pem"));
        self.sign(name, time, &["-extensions", "peer", "-keyfile", &key, "-cert", &certificate]);
        Identity { key: self.file(name, "key").into(), certificate: self.file(name, "pem").into() }
    }

    fn file(&self, name: &str, kind: &str) -> String {
        format!("{}/{name}.{kind}", self.folder.display())
    }

    fn request(&self, name: &str, subject: &str) {
        let (key, request, subject) =
            (self.file(name, "key"), self.file(name, "request"), format!("/CN={subject}"));
        let curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"];
        let files = ["-keyout", &key, "-out", &request, "-subj", &subject];
        self.run("req", &[&["-new"], &curve[..], &files].concat());
    }

    fn sign(&self, name: &str, time: Time, options: &[&str]) {
        let [start, end] = match time {
            Time::Now => ["20200101000000Z", "20991231000000Z"],
            Time::Past => ["20200101000000Z", "20200102000000Z"],
        };
        let (request, certificate) = (self.file(name, "request"), self.file(name, "pem"));
        let files = ["-batch", "-notext", "-in", &request, "-out", &certificate];
        self.run("ca", &[&files[..], &["-startdate", start, "-enddate", end], options].concat());
    }

    fn run(&self, verb: &str, options: &[&str]) {
        let config = self.file("config", "").trim_end_matches('.').to_owned();
        let done =
            Command::new("openssl").arg(verb).args(["-config", &config]).args(options).output().unwrap();
        assert!(done.status.success(), "{verb}: {}", String::from_utf8_lossy(&done.stderr));
    }
}
