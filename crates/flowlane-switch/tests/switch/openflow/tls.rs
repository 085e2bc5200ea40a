//! Controllers whose connections have TLS.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::Command;

use flowlane_openflow::Header;
use flowlane_switch::mgmt::openflow::TlsFiles;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::version::{TLS12, TLS13};
use rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, RootCertStore, ServerConfig, ServerConnection,
    SignatureScheme, StreamOwned, SupportedProtocolVersion,
};

use super::authority::{Authority, Identity, Time, is_possible};
use super::fail_modes::wait_until;
use super::*;

const BOTH: &[&SupportedProtocolVersion] = &[&TLS12, &TLS13];

/// An authority, the files of the switch, and those of a controller.
struct World {
    authority: Authority,
    files: TlsFiles,
    controller: Identity,
    folder: tempfile::TempDir,
}

impl World {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let authority = Authority::new(&folder.path().join("own"), Time::Now);
        let switch = authority.issue("switch", Time::Now);
        let controller = authority.issue("controller", Time::Now);
        let files = TlsFiles {
            private_key: switch.key,
            certificate: switch.certificate,
            ca_certificate: authority.certificate(),
            bootstraps: false,
        };
        Self { authority, files, controller, folder }
    }

    fn agent(&self, address: Address, wires: &Wires) -> Agent {
        let service = Service::new(wires.served.get().unwrap().clone(), "br1", 7, Arc::default());
        Agent::open(&[address], Some(&self.files), service).unwrap()
    }
}

/// An address at which nothing listens.
fn free() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

fn connect(to: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(to).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream
}

/// Accepts any certificate of a switch.
#[derive(Debug)]
struct Anyone;

impl ServerCertVerifier for Anyone {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = ring::default_provider().signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, &algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = ring::default_provider().signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, &algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        ring::default_provider().signature_verification_algorithms.supported_schemes()
    }
}

fn read(identity: &Identity) -> (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>) {
    let certificate = CertificateDer::from_pem_file(&identity.certificate).unwrap();
    (vec![certificate], PrivateKeyDer::from_pem_file(&identity.key).unwrap())
}

/// Connects as a controller with this certificate, or with none.
fn client(
    to: SocketAddr,
    identity: Option<&Identity>,
    versions: &[&'static SupportedProtocolVersion],
) -> StreamOwned<ClientConnection, TcpStream> {
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_protocol_versions(versions)
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Anyone));
    let config = match identity.map(read) {
        Some((chain, key)) => config.with_client_auth_cert(chain, key).unwrap(),
        None => config.with_no_client_auth(),
    };
    let connection = ClientConnection::new(Arc::new(config), "a.name".try_into().unwrap()).unwrap();
    StreamOwned::new(connection, connect(to))
}

/// Accepts a switch as a controller with TLS does.
fn server(
    listener: &TcpListener,
    authority: &Authority,
    identity: &Identity,
) -> StreamOwned<ServerConnection, TcpStream> {
    let (provider, mut roots) = (Arc::new(ring::default_provider()), RootCertStore::empty());
    roots.add(CertificateDer::from_pem_file(authority.certificate()).unwrap()).unwrap();
    let switches = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone());
    let (chain, key) = read(identity);
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(switches.build().unwrap())
        .with_single_cert(chain, key)
        .unwrap();
    let (stream, _) = listener.accept().unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    StreamOwned::new(ServerConnection::new(Arc::new(config)).unwrap(), stream)
}

/// Reads the switch's greeting; why there is none where the switch refuses the connection.
fn greeting(mut stream: impl Read) -> Result<(), String> {
    let mut bytes = [0; 8];
    stream.read_exact(&mut bytes).map_err(|error| error.to_string())?;
    assert_eq!(Header::read(&bytes).unwrap().kind, 0);
    Ok(())
}

#[test]
fn a_controller_drives_a_switch_by_tls() {
    if !is_possible() {
        return;
    }
    let world = World::new();
    with_switch(|_, wires| {
        let at = free();
        let _agent = world.agent(Address::ListenSsl(at), wires);
        for versions in [&[&TLS12][..], &[&TLS13][..]] {
            let stream = client(at, Some(&world.controller), versions);
            let mut controller = Controller::over(Box::new(stream), Version::OpenFlow13);
            // Requests and answers of many records, in both directions at once.
            for n in 0..600 {
                controller.send_change(&format!("add table=1,priority={n},udp,tp_dst={n} actions=output:2"));
            }
            for n in 0..50 {
                controller.send(&Message::EchoRequest(vec![n; 60_000]));
            }
            assert!((0..50).all(|n| controller.next() == Message::EchoReply(vec![n; 60_000])));
            assert_eq!(controller.flows().len(), 600);
            assert_eq!(controller.change("delete"), None);
        }
    });
}

#[test]
fn peers_without_a_valid_certificate_are_refused() {
    if !is_possible() {
        return;
    }
    let world = World::new();
    let others = Authority::new(&world.folder.path().join("others"), Time::Now);
    let stranger = others.issue("controller", Time::Now);
    let expired = world.authority.issue("expired", Time::Past);
    with_switch(|path, wires| {
        let at = free();
        let _agent = world.agent(Address::ListenSsl(at), wires);
        for versions in [&[&TLS12][..], &[&TLS13][..]] {
            for (identity, alert) in [
                (None, "CertificateRequired"),
                (Some(&stranger), "UnknownCA"),
                (Some(&expired), "CertificateExpired"),
            ] {
                let refused = greeting(client(at, identity, versions)).unwrap_err();
                // TLS 1.2 has no alert of a missing certificate.
                let is_named =
                    refused.contains(alert) || alert == "CertificateRequired" && versions == [&TLS12];
                assert!(is_named, "{alert}: {refused}");
            }
        }
        // Another protocol, and a greeting of OpenFlow.
        for bytes in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[4, 0, 0, 8, 0, 0, 0, 1]] {
            let mut stream = connect(at);
            stream.write_all(bytes).unwrap();
            let mut answer = Vec::new();
            // The connection may end before all is read, too.
            _ = stream.read_to_end(&mut answer);
            assert!(answer.first().is_none_or(|kind| *kind == 21), "an alert: {answer:?}");
        }
        assert_eq!(greeting(client(at, Some(&world.controller), BOTH)), Ok(()));
        // A handshake of TLS at an address without.
        let plain = free();
        let service = Service::new(wires.served.get().unwrap().clone(), "br2", 7, Arc::default());
        let _agent = Agent::open(&[Address::ListenTcp(plain)], None, service).unwrap();
        let begun = Instant::now();
        let refused = greeting(client(plain, Some(&world.controller), BOTH));
        assert!(refused.is_err() && begun.elapsed() < Duration::from_secs(5), "{refused:?}");
        drop(Controller::connect(path, Version::OpenFlow13));
    });
}

#[test]
fn half_open_handshakes_end_and_leave_room() {
    if !is_possible() {
        return;
    }
    let world = World::new();
    with_switch(|_, wires| {
        let at = free();
        let _agent = world.agent(Address::ListenSsl(at), wires);
        let begun = Instant::now();
        // Without a byte, with a part of a record, and with one byte after another.
        let mut half: Vec<TcpStream> = (0..100).map(|_| connect(at)).collect();
        half.iter_mut().skip(30).for_each(|stream| stream.write_all(&[22, 3, 1, 2, 0, 1]).unwrap());
        let mut late = client(at, Some(&world.controller), BOTH);
        late.conn.complete_io(&mut late.sock).unwrap();
        assert_eq!(greeting(client(at, Some(&world.controller), BOTH)), Ok(()));
        assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
        while begun.elapsed() < Duration::from_secs(11) {
            // They may be closed already.
            half.iter_mut().skip(60).for_each(|stream| _ = stream.write_all(&[0]));
            std::thread::sleep(Duration::from_millis(100));
        }
        for mut stream in half {
            stream.set_nonblocking(true).unwrap();
            let open = |error: &std::io::Error| error.kind() == std::io::ErrorKind::WouldBlock;
            assert!(!stream.read(&mut [0; 100]).is_err_and(|error| open(&error)), "it is still open");
        }
        // The greeting has the same time.
        late.sock.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        let end = std::io::copy(&mut late, &mut std::io::sink());
        assert!(end.is_ok(), "{end:?}");
    });
}

#[test]
fn a_renewed_certificate_needs_no_restart() {
    if !is_possible() {
        return;
    }
    let world = World::new();
    let others = Authority::new(&world.folder.path().join("others"), Time::Now);
    let (renewed, controller) = (others.issue("switch", Time::Now), others.issue("controller", Time::Now));
    with_switch(|_, wires| {
        let at = free();
        let _agent = world.agent(Address::ListenSsl(at), wires);
        let serial = |identity: &Identity| {
            let mut stream = client(at, Some(identity), BOTH);
            greeting(&mut stream).map(|()| stream.conn.peer_certificates().unwrap()[0].to_vec())
        };
        let mut old =
            Controller::over(Box::new(client(at, Some(&world.controller), BOTH)), Version::OpenFlow13);
        let first = serial(&world.controller).unwrap();
        // Until the key is renewed, too, the former certificate is used.
        std::fs::copy(&renewed.certificate, &world.files.certificate).unwrap();
        assert_eq!(serial(&world.controller).unwrap(), first);
        std::fs::copy(&renewed.key, &world.files.private_key).unwrap();
        assert_ne!(serial(&world.controller).unwrap(), first);
        std::fs::copy(others.certificate(), &world.files.ca_certificate).unwrap();
        assert!(serial(&world.controller).is_err());
        assert!(serial(&controller).is_ok());
        assert_eq!(old.barrier(), None, "a connection stays");
    });
}

#[test]
fn the_switch_connects_to_controllers_of_its_authority_alone() {
    if !is_possible() {
        return;
    }
    let world = World::new();
    let others = Authority::new(&world.folder.path().join("others"), Time::Now);
    let stranger = others.issue("controller", Time::Now);
    with_switch(|_, wires| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let _agent = world.agent(Address::ConnectSsl(listener.local_addr().unwrap()), wires);
        let refused = greeting(server(&listener, &world.authority, &stranger)).unwrap_err();
        assert!(refused.contains("UnknownCA"), "{refused}");
        let report = || wires.served.get().unwrap().show().unwrap().controllers.pop().unwrap();
        let is_named = |error: &str| error.contains("UnknownIssuer");
        wait_until("the refusal is reported", || report().last_error.is_some_and(|error| is_named(&error)));
        // It tries again, and presents its own certificate.
        let stream = server(&listener, &world.authority, &world.controller);
        let mut controller = Controller::over(Box::new(stream), Version::OpenFlow13);
        assert_eq!(controller.change("add udp actions=drop"), None);
        assert_eq!((report().connections, report().failed), (1, 1));
        drop(controller);
        // A controller that does not answer the handshake holds the connection for a time only.
        let (silent, _) = listener.accept().unwrap();
        let begun = Instant::now();
        silent.set_read_timeout(Some(Duration::from_secs(15))).unwrap();
        assert!(std::io::copy(&mut &silent, &mut std::io::sink()).is_ok());
        assert!((5..14).contains(&begun.elapsed().as_secs()), "{:?}", begun.elapsed());
    });
}

#[test]
fn ovs_ofctl_talks_to_the_switch_by_tls() {
    if !is_possible() || Command::new("ovs-ofctl").arg("--version").output().is_err() {
        println!("skipped: there is no `ovs-ofctl`");
        return;
    }
    let world = World::new();
    with_switch(|_, wires| {
        let at = free();
        let _agent = world.agent(Address::ListenSsl(at), wires);
        let run = |words: &[&str]| {
            let Identity { key, certificate } = &world.controller;
            let files =
                [key, certificate, &world.authority.certificate()].map(|path| path.display().to_string());
            let options = ["-p", &files[0], "-c", &files[1], "-C", &files[2], "-O", "OpenFlow13"];
            let [verb, rest @ ..] = words else { panic!("a verb") };
            let done = Command::new("ovs-ofctl")
                .args(options)
                .arg(verb)
                .arg(format!("ssl:{at}"))
                .args(rest)
                .output();
            let done = done.unwrap();
            assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
            String::from_utf8(done.stdout).unwrap()
        };
        assert!(run(&["show"]).contains("dpid:0000000000000007"));
        run(&["add-flow", "table=1,udp,actions=output:2"]);
        assert!(run(&["dump-flows"]).contains("udp actions=output:2"));
    });
}

/// The section of the configuration, and the part of it that an error is at.
fn refusal(folder: &Path, files: [&PathBuf; 3]) -> (String, String) {
    let [key, certificate, authority] = files.map(|path| path.display().to_string());
    let text = format!(
        "[openflow]\ncontrollers = [\"pssl:\"]\n[openflow.tls]\nprivate_key = \"{key}\"\ncertificate = \"{certificate}\"\n\
         ca_certificate = \"{authority}\"\n"
    );
    let config = folder.join("switch.toml");
    std::fs::write(&config, &text).unwrap();
    let error = Setup::read(&config).unwrap().openflow().expect_err("it is refused");
    (text[..error.span.unwrap().start].lines().last().unwrap().to_owned(), error.message)
}

#[test]
fn files_that_cannot_be_used_are_refused_at_their_line() {
    if !is_possible() {
        return;
    }
    let World { authority, files, folder, .. } = World::new();
    let folder = folder.path();
    let expired = Authority::new(&folder.join("expired"), Time::Past);
    let old = authority.issue("old", Time::Past);
    let other = authority.issue("other", Time::Now);
    let missing = folder.join("missing");
    let encrypted = folder.join("encrypted");
    std::fs::write(
        &encrypted,
        "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n",
    )
    .unwrap();
    let broken = folder.join("broken");
    std::fs::write(&broken, "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n").unwrap();
    let large = folder.join("large");
    std::fs::File::create(&large).unwrap().set_len(1 << 40).unwrap();
    let TlsFiles { private_key: key, certificate, ca_certificate: ca, .. } = &files;
    for (files, line, problem) in [
        ([&missing, certificate, ca], "private_key", "No such file"),
        ([key, &missing, ca], "certificate", "No such file"),
        ([key, certificate, &missing], "ca_certificate", "No such file"),
        ([certificate, certificate, ca], "private_key", "no private key"),
        ([&encrypted, certificate, ca], "private_key", "encrypted"),
        ([key, key, ca], "certificate", "no certificate"),
        ([key, &broken, ca], "certificate", "malformed"),
        ([key, certificate, &broken], "ca_certificate", "malformed"),
        ([key, certificate, &large], "ca_certificate", "more than"),
        ([&other.key, certificate, ca], "certificate", "does not fit the private key"),
        ([&old.key, &old.certificate, ca], "certificate", "has expired"),
        ([key, certificate, &expired.certificate()], "ca_certificate", "has expired"),
    ] {
        let (at, message) = refusal(folder, files);
        assert!(at.starts_with(&format!("{line} = ")), "{problem}: {at}: {message}");
        assert!(message.contains(problem), "{line}: {message}");
    }
    let config = folder.join("switch.toml");
    std::fs::write(&config, "[openflow]\ncontrollers = [\"ssl:127.0.0.1\"]\n").unwrap();
    let error = Setup::read(&config).unwrap().openflow().unwrap_err();
    assert!(error.message.contains("needs a private key"), "{}", error.message);
}
