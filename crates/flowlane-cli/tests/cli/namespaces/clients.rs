//! The router between real clients and servers: curl by HTTP and FTP, traceroute, pings that are larger than a packet, and sessions.

mod frr;
mod restarts;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use super::interfaces::wait_until;
use super::router::{Hosts, control, hosts, start};
use super::{sh, skipped};

/// The interpreter that has Debian's package of the FTP server.
const PYTHON: &str = "/usr/bin/python3";

/// Bytes of the file that clients fetch and store.
const FILE_BYTES: usize = 3 << 20;

/// Returns whether these programs are there, and says which are not.
fn has(programs: &[&str]) -> bool {
    let missing: Vec<&&str> = programs.iter().filter(|name| !sh(&format!("command -v {name}"))).collect();
    let is_there = missing.is_empty();
    if !is_there {
        skipped(&format!("there is no {missing:?}"));
    }
    is_there
}

/// A program on a host, killed when dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

/// Starts a program on a host.
fn running(hosts: &Hosts, host: usize, program: &str, arguments: &[&str]) -> Running {
    let mut command = Command::new("ip");
    command.args(["netns", "exec", &hosts.names[host], program]).args(arguments);
    Running(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
}

/// Servers of HTTP and FTP on a host, with a folder of one file.
struct Servers {
    _running: Running,
    folder: PathBuf,
}

impl Servers {
    /// Starts them; none where a program is missing.
    fn start(hosts: &Hosts, host: usize, at: &Path) -> Option<Self> {
        if !has(&["curl", PYTHON]) || !sh(&format!("{PYTHON} -c 'import pyftpdlib'")) {
            skipped(&format!(
                "needs curl and {PYTHON} with pyftpdlib (apt-get install curl python3-pyftpdlib)"
            ));
            return None;
        }
        let folder = at.join("served");
        fs::create_dir(&folder).unwrap();
        let bytes: Vec<u8> =
            (0..FILE_BYTES as u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        fs::write(folder.join("file"), bytes).unwrap();
        let script = at.join("servers.py");
        fs::write(&script, include_str!("clients/servers.py")).unwrap();
        let arguments = [script.to_str().unwrap(), folder.to_str().unwrap()];
        let running = running(hosts, host, PYTHON, &arguments);
        wait_until("the servers listen", || {
            let listening = hosts.on(host, "ss -Hltn");
            [":21 ", ":80 "].iter().all(|port| listening.contains(port))
        });
        Some(Self { _running: running, folder })
    }

    /// Fetches the file from a server to another host, with options of curl. Returns what curl says where it fails.
    fn fetch(&self, hosts: &Hosts, host: usize, options: &str) -> Result<(), String> {
        let to = self.folder.with_file_name("fetched");
        let said =
            hosts.on(host, &format!("curl -sS -m 20 --connect-timeout 5 -o {} {options}", to.display()));
        let is_same = fs::read(&to).ok() == fs::read(self.folder.join("file")).ok();
        _ = fs::remove_file(&to);
        if is_same { Ok(()) } else { Err(format!("curl {options}: {said}")) }
    }

    /// Stores the file on a server.
    fn store(&self, hosts: &Hosts, host: usize, options: &str) -> Result<(), String> {
        let (file, stored) = (self.folder.join("file"), self.folder.join("stored"));
        let said =
            hosts.on(host, &format!("curl -sS -m 20 --connect-timeout 5 -T {} {options}", file.display()));
        let is_same = fs::read(&stored).ok() == fs::read(&file).ok();
        _ = fs::remove_file(&stored);
        if is_same { Ok(()) } else { Err(format!("curl -T {options}: {said}")) }
    }
}

/// The sections of a router whose firewall has these entries; hosts outside have no route back.
fn sections(allow: &str, more: &str) -> String {
    format!(
        "[router]\nroutes = [\"203.0.113.0/24 via 198.51.100.2\"]\n\
         [firewall]\ninside = [\"lan\"]\noutside = [\"wan\"]\nallow = [{allow}]\ntranslate = [\"wan\"]\n{more}"
    )
}

#[test]
fn files_are_fetched_from_servers_outside() {
    let Some(hosts) = hosts('e') else { return };
    let folder = tempfile::tempdir().unwrap();
    let Some(servers) = Servers::start(&hosts, 1, folder.path()) else { return };
    let mut switch = start(folder.path(), &hosts, None, &sections("\"outgoing\"", ""));
    hosts.expect(0, "ping -c 1 -W 5 203.0.113.7", "1 received");
    let begun = Instant::now();
    let user = "-u user:pass";
    servers.fetch(&hosts, 0, "http://203.0.113.7/file").unwrap();
    servers.fetch(&hosts, 0, "http://[2001:db8:2::2]/file").unwrap();
    // Passive, by EPSV and by PASV.
    servers.fetch(&hosts, 0, &format!("{user} ftp://203.0.113.7/file")).unwrap();
    servers.fetch(&hosts, 0, &format!("{user} --disable-epsv ftp://203.0.113.7/file")).unwrap();
    servers.store(&hosts, 0, &format!("{user} ftp://203.0.113.7/stored")).unwrap();
    println!("five files of {FILE_BYTES} bytes took {:?}", begun.elapsed());
    switch.stop();
}

#[test]
fn traceroute_shows_the_router_and_large_pings_pass() {
    let Some(hosts) = hosts('f') else { return };
    let folder = tempfile::tempdir().unwrap();
    let mut switch = start(folder.path(), &hosts, None, &sections("\"outgoing\", \"in icmp echo\"", ""));
    hosts.expect(0, "ping -c 1 -W 5 203.0.113.7", "1 received");
    for size in [1472, 1473, 3000, 8000, 60_000] {
        hosts.expect(0, &format!("ping -c 3 -i 0.1 -W 3 -s {size} 203.0.113.7"), " 0% packet loss");
        hosts.expect(0, &format!("ping -c 3 -i 0.1 -W 3 -s {size} 2001:db8:2::2"), " 0% packet loss");
    }
    if has(&["traceroute"]) {
        for options in ["", "-I", "-T -p 80"] {
            for (to, hop) in [("203.0.113.7", "192.0.2.1"), ("2001:db8:2::2", "2001:db8:1::1")] {
                let shown = hosts.on(0, &format!("traceroute -n -q 1 -w 3 -m 4 {options} {to}"));
                let hops: Vec<Option<&str>> =
                    shown.lines().skip(1).map(|line| line.split_whitespace().nth(1)).collect();
                assert_eq!(hops, [Some(hop), Some(to)], "{options}: {shown}");
            }
        }
    }
    switch.stop();
}

#[test]
fn ftp_data_connections_begin_from_both_sides() {
    let Some(hosts) = hosts('g') else { return };
    let folder = tempfile::tempdir().unwrap();
    let Some(servers) = Servers::start(&hosts, 1, folder.path()) else { return };
    let sections = sections("\"outgoing\", \"out ftp\"", "");
    let mut switch = start(folder.path(), &hosts, None, &sections);
    hosts.expect(0, "ping -c 1 -W 5 203.0.113.7", "1 received");
    let user = "-u user:pass";
    for (address, more) in [
        ("203.0.113.7", "--ftp-port - --disable-eprt"),
        ("203.0.113.7", "--ftp-port -"),
        ("[2001:db8:2::2]", "--ftp-port -"),
        ("203.0.113.7", "--disable-epsv"),
        ("203.0.113.7", ""),
        ("[2001:db8:2::2]", ""),
    ] {
        servers.fetch(&hosts, 0, &format!("{user} {more} ftp://{address}/file")).unwrap();
        servers.store(&hosts, 0, &format!("{user} {more} ftp://{address}/stored")).unwrap();
    }
    // Without `out ftp`, no data connection begins outside.
    fs::write(
        folder.path().join("router.toml"),
        fs::read_to_string(folder.path().join("router.toml")).unwrap().replace(", \"out ftp\"", ""),
    )
    .unwrap();
    control(folder.path(), "reload");
    let active = format!("{user} --ftp-port - ftp://203.0.113.7/file");
    assert!(servers.fetch(&hosts, 0, &active).is_err());
    servers.fetch(&hosts, 0, &format!("{user} ftp://203.0.113.7/file")).unwrap();
    switch.stop();
}

#[test]
fn servers_inside_are_reached_at_the_outside_address() {
    let Some(hosts) = hosts('h') else { return };
    let folder = tempfile::tempdir().unwrap();
    let Some(servers) = Servers::start(&hosts, 0, folder.path()) else { return };
    // Another host inside, on the link of the server: a second address that asks for its own outside address.
    let sections = sections(
        "\"outgoing\"",
        "forward = [\"wan tcp 8080 to 192.0.2.5:80\", \"wan tcp 80 to 192.0.2.5\", \"wan ftp to 192.0.2.5\"]\n",
    );
    let mut switch = start(folder.path(), &hosts, None, &sections);
    hosts.expect(0, "ping -c 1 -W 5 203.0.113.7", "1 received");
    for host in [1, 0] {
        for url in [
            "http://198.51.100.1:8080/file",
            "http://198.51.100.1/file",
            "-u user:pass ftp://198.51.100.1/file",
        ] {
            servers.fetch(&hosts, host, url).unwrap_or_else(|error| panic!("host {host}: {error}"));
        }
    }
    for more in ["--disable-epsv", "--ftp-port -", "--ftp-port - --disable-eprt"] {
        servers.fetch(&hosts, 1, &format!("-u user:pass {more} ftp://198.51.100.1/file")).unwrap();
        servers.store(&hosts, 1, &format!("-u user:pass {more} ftp://198.51.100.1/stored")).unwrap();
    }
    assert!(servers.fetch(&hosts, 1, "http://192.0.2.5/file").is_err(), "only at the outside address");
    switch.stop();
}
