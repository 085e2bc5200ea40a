//! Controllers with TLS, whose files `ovs-vsctl set-ssl` names, and the settings of connections with controllers.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::Command;
use std::time::{Duration, Instant};

use super::Host;
use crate::namespaces::{sh, skipped};
use crate::support::wait_until;

/// An authority, and a key and certificate of the switch and of a controller, in PEM.
pub(super) const CERTIFICATES: &str = "cd FOLDER && openssl req -x509 -newkey rsa:2048 -nodes -keyout ca.key -out ca.pem -days 2 -subj /CN=authority && \
     for name in switch controller; do openssl req -newkey rsa:2048 -nodes -keyout $name.key -out $name.csr -subj /CN=$name && \
     printf 'basicConstraints=CA:FALSE\\n' >v3 && \
     openssl x509 -req -in $name.csr -CA ca.pem -CAkey ca.key -CAcreateserial -extfile v3 -days 2 -out $name.pem; done";

/// The files may come after the controller: as in Open vSwitch, the daemon goes on without until they can be used.
#[test]
fn controllers_use_the_files_that_set_ssl_names() {
    if !sh("command -v openssl") {
        return skipped("needs openssl");
    }
    let Some(host) = Host::start("fvt") else { return };
    assert!(host.ip("link set lo up"));
    let at = host.at().display().to_string();
    host.vsctl("add-br br0").unwrap();
    host.vsctl(&format!("set-ssl {at}/switch.key {at}/switch.pem {at}/ca.pem")).unwrap();
    host.vsctl("set-controller br0 pssl:6653:127.0.0.1 ptcp:6654:127.0.0.1").unwrap();
    let show = |target: &str, files: &[String]| {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &host.namespace]).arg(host.programs.path("ovs-ofctl"));
        host.programs.surround(&mut command, host.at());
        let output = command.args(files).args(["--timeout=5", "show", target]).output().unwrap();
        String::from_utf8_lossy(&output.stdout).contains("LOCAL(br0)")
    };
    let files = [("-p", "controller.key"), ("-c", "controller.pem"), ("-C", "ca.pem")]
        .map(|(option, file)| format!("{option}{at}/{file}"));
    assert!(show("tcp:127.0.0.1:6654", &[]), "the other controller");
    assert!(sh(&CERTIFICATES.replace("FOLDER", &at)));
    wait_until("the switch listens with TLS", || show("ssl:127.0.0.1:6653", &files));
    assert!(show("tcp:127.0.0.1:6654", &[]), "the other controller goes on");
    host.vsctl("del-ssl").unwrap();
    wait_until("without files, nothing listens with TLS", || !show("ssl:127.0.0.1:6653", &files));
}

/// A greeting in OpenFlow 1.3, and the type of a question whether the peer lives.
const HELLO: [u8; 8] = [4, 0, 0, 8, 0, 0, 0, 1];
const ECHO_REQUEST: u8 = 2;

/// Reads messages until the connection ends; returns their types, each with its time.
fn types(stream: &mut UnixStream) -> Vec<(u8, Duration)> {
    let (begun, mut types, mut header) = (Instant::now(), Vec::new(), [0; 8]);
    while stream.read_exact(&mut header).is_ok() {
        types.push((header[1], begun.elapsed()));
        let length = usize::from(u16::from_be_bytes([header[2], header[3]]));
        if stream.read_exact(&mut vec![0; length - header.len()]).is_err() {
            break;
        }
    }
    types
}

#[test]
fn silent_controllers_are_asked_and_tried_again_when_the_database_says() {
    let Some(host) = Host::start("fvi") else { return };
    let path = host.at().join("controller");
    let listener = UnixListener::bind(&path).unwrap();
    host.vsctl(&format!("add-br br0 -- set-controller br0 unix:{}", path.display())).unwrap();
    host.vsctl("set Controller br0 inactivity_probe=600 max_backoff=1000").unwrap();
    wait_until("the controller is asked", || {
        let (mut stream, _) = listener.accept().unwrap();
        // The first connection may be from before, and has been closed then.
        _ = stream.write_all(&HELLO);
        let types = types(&mut stream);
        types.iter().any(|(kind, at)| *kind == ECHO_REQUEST && *at < Duration::from_secs(3))
    });
    // Pauses do not grow: 1, 2, 4 and 8 seconds are those that are usual.
    let begun = Instant::now();
    (0..5).for_each(|_| drop(listener.accept().unwrap()));
    assert!(begun.elapsed() < Duration::from_secs(12), "{:?}", begun.elapsed());
    host.vsctl("set Controller br0 inactivity_probe=0").unwrap();
    wait_until("it is not asked", || {
        let (mut stream, _) = listener.accept().unwrap();
        _ = stream.write_all(&HELLO);
        stream.set_read_timeout(Some(Duration::from_secs(7))).unwrap();
        let begun = Instant::now();
        let types = types(&mut stream);
        begun.elapsed() >= Duration::from_secs(7) && types.iter().all(|(kind, _)| *kind != ECHO_REQUEST)
    });
}

#[test]
fn a_bridge_is_described_as_the_database_says() {
    let Some(host) = Host::start("fvs") else { return };
    host.vsctl("add-br br0 -- set Bridge br0 other_config:dp-desc=room-3120 other_config:dp-sn=SN-42")
        .unwrap();
    let described = || host.ofctl(&["dump-desc", "br0"]);
    assert!(described().contains("DP Description: room-3120\n"), "{}", described());
    assert!(described().contains("Serial Num: SN-42\n"), "{}", described());
    host.vsctl("remove Bridge br0 other_config dp-desc -- remove Bridge br0 other_config dp-sn").unwrap();
    assert!(described().contains("DP Description: br0\n"), "{}", described());
    assert!(described().contains("Serial Num: None\n"), "{}", described());
}
