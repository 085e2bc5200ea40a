//! Databases whose servers are reached by TCP and TLS.

use super::Host;
use super::controllers::CERTIFICATES;
use crate::namespaces::{sh, skipped};
use crate::support::wait_until;

/// A host whose server listens with TLS, and with keys and certificates in its folder.
fn host_with_tls(name: &str) -> Option<Host> {
    if !sh("command -v openssl") {
        skipped("needs openssl");
        return None;
    }
    let mut host = Host::without_daemon(name)?;
    let at = host.at().display().to_string();
    assert!(sh(&CERTIFICATES.replace("FOLDER", &at)) && host.ip("link set lo up"));
    listen(&mut host, "controller");
    Some(host)
}

/// Lets the server listen with this certificate.
fn listen(host: &mut Host, name: &str) {
    let at = host.at().display().to_string();
    let remotes = ["pssl:6640:127.0.0.1", "pssl:6641:[::1]", "ptcp:6642:127.0.0.1"];
    host.server_options = remotes.map(|remote| format!("--remote={remote}")).to_vec();
    let files = [("private-key", "key"), ("certificate", "pem")];
    host.server_options.extend(files.map(|(option, kind)| format!("--{option}={at}/{name}.{kind}")));
    host.server_options.extend(["ca-cert", "peer-ca-cert"].map(|option| format!("--{option}={at}/ca.pem")));
    host.start_server();
}

/// The authority is learned from the first server, as by Open vSwitch, and another one's server is refused from then on.
#[test]
fn the_database_is_reached_by_tls_and_a_server_of_another_authority_is_refused() {
    let Some(mut host) = host_with_tls("dbs") else { return };
    let at = host.at().display().to_string();
    let (key, certificate) =
        (format!("--private-key={at}/switch.key"), format!("--certificate={at}/switch.pem"));
    let learned = |name: &str| std::fs::read_to_string(format!("{at}/{name}")).unwrap();
    let bootstrap = format!("--bootstrap-ca-cert={at}/theirs.pem");
    host.start_open_vswitch_at("ssl:127.0.0.1:6640", &[&key, &certificate, &bootstrap]);
    host.vsctl("add-br br0 -- set Bridge br0 datapath_type=netdev").unwrap();
    host.appctl(&["exit", "--cleanup"]).unwrap();
    drop(host.daemon.take());
    _ = std::fs::remove_file(host.at().join("ovs-vswitchd.pid"));
    let bootstrap = format!("--bootstrap-ca-cert={at}/ours.pem");
    // The first of several is not there.
    host.start_daemon_with(&["ssl:127.0.0.1:9,ssl:[::1]:6641", &key, &certificate, &bootstrap]);
    host.vsctl("add-br br1").unwrap();
    assert_eq!(learned("ours.pem"), learned("theirs.pem"));
    host.start_server();
    host.vsctl("add-br br2").unwrap();
    // Another authority, with keys of its own.
    let other = format!("{at}/other");
    assert!(sh(&format!("mkdir {other}")) && sh(&CERTIFICATES.replace("FOLDER", &other)));
    listen(&mut host, "other/controller");
    let refused = host.vsctl("--timeout=3 add-br br3").unwrap_err();
    assert!(refused.contains("Alarm clock") || refused.contains("alarm"), "{refused}");
    assert!(!host.ip("link show br3"));
    listen(&mut host, "controller");
    wait_until("the server is believed again", || host.ip("link show br3"));
}

/// Controllers have the daemon's files, where the database names none.
#[test]
fn a_database_by_tcp_leaves_the_files_of_tls_to_controllers() {
    let Some(mut host) = host_with_tls("dbt") else { return };
    let at = host.at().display().to_string();
    let files = ["private-key=switch.key", "certificate=switch.pem", "ca-cert=ca.pem"].map(|option| {
        let (option, file) = option.split_once('=').unwrap();
        format!("--{option}={at}/{file}")
    });
    let arguments: Vec<&str> =
        std::iter::once("tcp:127.0.0.1:6642").chain(files.iter().map(String::as_str)).collect();
    host.start_daemon_with(&arguments);
    host.vsctl("add-br br0 -- set-controller br0 pssl:6653:127.0.0.1").unwrap();
    let show = format!(
        "ip netns exec {} {} -p {at}/controller.key -c {at}/controller.pem -C {at}/ca.pem --timeout=5 show ssl:127.0.0.1:6653",
        host.namespace,
        host.programs.path("ovs-ofctl").display()
    );
    wait_until("the switch listens with TLS", || sh(&show));
}
