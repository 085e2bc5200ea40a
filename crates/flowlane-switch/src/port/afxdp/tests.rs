use super::*;

#[test]
fn what_is_in_the_way_is_said_with_what_helps() {
    let said = |code, mode| problem(&io::Error::from_raw_os_error(code), mode);
    for (code, part) in [
        (libc::EPERM, "cap_bpf"),
        (libc::ENOBUFS, "ulimit -l"),
        (libc::EBUSY, "xdp off"),
        (libc::EAFNOSUPPORT, "afpacket:"),
        (libc::EIO, "cannot be opened"),
    ] {
        assert!(said(code, XdpMode::Auto).contains(part), "{code}: {}", said(code, XdpMode::Auto));
    }
    assert!(said(libc::EOPNOTSUPP, XdpMode::ZeroCopy).contains("no mode `zerocopy`"));
    let missing = AfXdpPort::open_all("no-such-if", XdpMode::Auto, 1).err().unwrap().to_string();
    assert!(missing.contains("no interface `no-such-if`; there are"), "{missing}");
}
