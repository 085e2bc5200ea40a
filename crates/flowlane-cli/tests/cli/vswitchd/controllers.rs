//! Controllers with TLS, whose files `ovs-vsctl set-ssl` names.

use std::process::Command;

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
