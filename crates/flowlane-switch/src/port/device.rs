//! Settings and descriptions of the system's interfaces (netdevice(7), the kernel's `ethtool` requests).

use std::io;
use std::mem::zeroed;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// `ethtool` requests: the settings of a link, and the driver.
const ETHTOOL_GSET: u32 = 1;
const ETHTOOL_GDRVINFO: u32 = 3;
/// The link has no speed, or an unknown one.
const SPEED_UNKNOWN: u32 = u32::MAX;

/// `struct ethtool_cmd`.
#[repr(C)]
#[derive(Default)]
struct LinkRequest {
    command: u32,
    supported: u32,
    advertising: u32,
    speed: u16,
    duplex: u8,
    port: u8,
    address: u8,
    transceiver: u8,
    autoneg: u8,
    mdio: u8,
    max_tx: u32,
    max_rx: u32,
    speed_high: u16,
    crossing: [u8; 2],
    peer_advertising: u32,
    reserved: [u32; 2],
}

/// `struct ethtool_drvinfo`.
#[repr(C)]
struct DriverRequest {
    command: u32,
    driver: [u8; 32],
    version: [u8; 32],
    firmware: [u8; 32],
    bus: [u8; 32],
    rom: [u8; 32],
    reserved: [u8; 12],
    counts: [u32; 5],
}

const _: () = assert!(size_of::<LinkRequest>() == 44 && size_of::<DriverRequest>() == 196);

/// The mode of a link, as its driver describes it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct LinkMode {
    /// None where it is unknown.
    pub(crate) speed_mbps: Option<u32>,
    pub(crate) is_full_duplex: bool,
    /// Its connector is one for copper wires.
    pub(crate) is_copper: bool,
}

/// The driver of an interface.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Driver {
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) firmware: String,
}

fn socket() -> io::Result<OwnedFd> {
    // SAFETY: no pointers are passed.
    let fd = unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the system has just returned this descriptor, and it has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// An interface request with its name filled in.
pub(super) fn request(name: &str) -> libc::ifreq {
    // SAFETY: all-zero bytes are a valid ifreq, which is a plain C structure.
    let mut request: libc::ifreq = unsafe { zeroed() };
    // The last byte stays zero.
    for (to, from) in request.ifr_name[..libc::IFNAMSIZ - 1].iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    request
}

/// Makes a request of an interface, of a kind that reads and writes nothing but the `ifreq`.
fn ask(kind: libc::c_ulong, request: &mut libc::ifreq) -> io::Result<()> {
    let socket = socket()?;
    // SAFETY: the callers pass requests of netdevice(7), whose argument is an ifreq; a pointer in it is to a structure that is large
    // enough for its request and outlives the call.
    let done = unsafe { libc::ioctl(socket.as_raw_fd(), kind as _, std::ptr::from_mut(request)) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Sets an interface up or down.
///
/// # Errors
/// Where there is none of this name, or no permission.
pub(crate) fn set_up(name: &str, is_up: bool) -> io::Result<()> {
    let mut request = request(name);
    ask(libc::SIOCGIFFLAGS, &mut request)?;
    let up = libc::IFF_UP as libc::c_short;
    // SAFETY: the call above has made the flags the union's active member.
    let flags = unsafe { request.ifr_ifru.ifru_flags };
    if (flags & up != 0) == is_up {
        return Ok(());
    }
    request.ifr_ifru.ifru_flags = if is_up { flags | up } else { flags & !up };
    ask(libc::SIOCSIFFLAGS, &mut request)
}

/// Sets the MTU of an interface, in bytes.
///
/// # Errors
/// Where there is none of this name, its driver refuses the MTU, or there is no permission.
pub(crate) fn set_mtu(name: &str, mtu: u32) -> io::Result<()> {
    let mut request = request(name);
    request.ifr_ifru.ifru_mtu = libc::c_int::try_from(mtu).unwrap_or(libc::c_int::MAX);
    ask(libc::SIOCSIFMTU, &mut request)
}

/// Returns the MTU of an interface, in bytes; `None`: there is none of this name.
pub(crate) fn mtu(name: &str) -> Option<u32> {
    let mut request = request(name);
    ask(libc::SIOCGIFMTU, &mut request).ok()?;
    // SAFETY: the call above has made the MTU the union's active member.
    let mtu = unsafe { request.ifr_ifru.ifru_mtu };
    u32::try_from(mtu).ok()
}

/// Returns the index of an interface; `None`: there is none of this name.
pub(crate) fn index(name: &str) -> Option<i32> {
    super::interface::index_of(name).ok().flatten()
}

/// Sets the Ethernet address of an interface.
///
/// # Errors
/// Where there is none of this name, its driver refuses the address, or there is no permission.
pub(crate) fn set_mac(name: &str, mac: [u8; 6]) -> io::Result<()> {
    let mut request = request(name);
    // SAFETY: all-zero bytes are a valid sockaddr, which is a plain C structure.
    let mut address: libc::sockaddr = unsafe { zeroed() };
    address.sa_family = libc::ARPHRD_ETHER;
    address.sa_data.iter_mut().zip(mac).for_each(|(to, from)| *to = from as libc::c_char);
    request.ifr_ifru.ifru_hwaddr = address;
    ask(libc::SIOCSIFHWADDR, &mut request)
}

/// Returns the mode of an interface's link, if its driver describes it.
pub(crate) fn link_mode(name: &str) -> Option<LinkMode> {
    let mut link = LinkRequest { command: ETHTOOL_GSET, ..LinkRequest::default() };
    let mut request = request(name);
    request.ifr_ifru.ifru_data = std::ptr::from_mut(&mut link).cast();
    ask(libc::SIOCETHTOOL, &mut request).ok()?;
    let speed = u32::from(link.speed_high) << 16 | u32::from(link.speed);
    Some(LinkMode {
        speed_mbps: (speed != 0 && speed != SPEED_UNKNOWN && speed != 0xffff).then_some(speed),
        is_full_duplex: link.duplex == 1,
        is_copper: link.port == 0,
    })
}

/// Returns the driver of an interface, if it says who it is.
pub(crate) fn driver(name: &str) -> Option<Driver> {
    // SAFETY: all-zero bytes are a valid DriverRequest, which has integers only.
    let mut driver: DriverRequest = unsafe { zeroed() };
    driver.command = ETHTOOL_GDRVINFO;
    let mut request = request(name);
    request.ifr_ifru.ifru_data = std::ptr::from_mut(&mut driver).cast();
    ask(libc::SIOCETHTOOL, &mut request).ok()?;
    let text = |bytes: &[u8; 32]| {
        let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
        String::from_utf8_lossy(&bytes[..end]).into_owned()
    };
    Some(Driver {
        name: text(&driver.driver),
        version: text(&driver.version),
        firmware: text(&driver.firmware),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interface_that_is_not_there_is_an_error() {
        assert_eq!(link_mode("nowhere"), None);
        assert_eq!((mtu("nowhere"), index("nowhere")), (None, None));
        assert!(mtu("lo") > Some(1000) && index("lo") > Some(0));
        assert_eq!(driver("nowhere"), None);
        assert_eq!(set_up("nowhere", true).unwrap_err().raw_os_error(), Some(libc::ENODEV));
        assert!(set_mtu("nowhere", 1500).is_err() && set_mac("nowhere", [2; 6]).is_err());
        // A name that is too long is cut, and no other memory is written.
        assert!(set_up(&"x".repeat(100), true).is_err());
    }
}
