//! The commands of the README's section about `flowlane vswitchd`, on a machine without anything.

use std::fs;
use std::process::Command;

use flowlane::testing::OvsPrograms;

use crate::namespaces::{sh, skipped};

/// The script that starts Open vSwitch, which the section names.
const OVS_CTL: &str = "/usr/share/openvswitch/scripts/ovs-ctl";

/// The commands and the output that the README shows of them.
fn section() -> (String, String) {
    let readme = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../README.md")).unwrap();
    let (_, marked) =
        readme.split_once("<!-- Run by tests/cli/vswitchd/readme.rs, word for word. -->\n```sh\n").unwrap();
    let (commands, behind) = marked.split_once("```\n").unwrap();
    let (_, shown) = behind.split_once("```text\n").unwrap();
    let (shown, _) = shown.split_once("```").unwrap();
    (commands.to_owned(), shown.to_owned())
}

#[test]
fn the_readmes_commands_make_a_bridge_from_nothing() {
    if OvsPrograms::find().is_none() {
        return;
    }
    if !fs::exists(OVS_CTL).unwrap() {
        return skipped("Open vSwitch is not installed where the README has it");
    }
    if !sh(
        "test $(id -u) = 0 && unshare --net --mount sh -ec 'mount -t tmpfs tmpfs /run && ip link add eth1 type veth'",
    ) {
        return skipped("needs root, unshare, and network namespaces");
    }
    let binary = assert_cmd::cargo::cargo_bin!("flowlane");
    let path = format!("{}:{}", binary.parent().unwrap().display(), std::env::var("PATH").unwrap());
    let (commands, shown) = section();
    // A machine with one more interface, and folders of its own where the programs keep their files.
    let script = format!(
        "mkdir -p /etc/openvswitch /var/log/openvswitch /var/lib/openvswitch\n\
         for folder in /run /etc/openvswitch /var/log/openvswitch /var/lib/openvswitch; do mount -t tmpfs tmpfs $folder; done\n\
         ip link set lo up\nip link add eth1 type veth peer name wire\n\
         trap 'ovs-appctl exit; {OVS_CTL} stop' EXIT\n{commands}"
    );
    let output = Command::new("timeout")
        .args(["60", "unshare", "--net", "--mount", "sh", "-e", "-c", &script])
        .env("PATH", path)
        .env("FLOWLANE_TUNE", "/dev/null")
        .env_remove("OVS_RUNDIR")
        .output()
        .unwrap();
    let (text, said) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{text}\n{said}");
    assert!(text.contains(&shown), "the README shows:\n{shown}\nbut there is:\n{text}\n{said}");
    println!("the README's commands work");
}
