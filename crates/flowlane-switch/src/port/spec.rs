//! Port specifications: `pcap:FILE,loop=0`, `tap:NAME`, ….

use std::fmt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use super::r#gen::{GenConfig, GenPort};
use super::memory::NullPort;
use super::pcap::{PcapConfig, PcapPort};
use super::pcap_out::{PcapOutConfig, PcapOutPort, Rotation};
use super::{Port, PortError, SharedPort};
use crate::packet::Spread;
use crate::tunnel::PortTunnelSpec;
use flowlane_capture::FileFormat;

/// A port that can be opened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PortSpec {
    /// `pcap:FILE[,loop=N][,rate=PPS][,out=FILE]`: replays a capture; `loop=0` without end.
    Pcap(PcapConfig),
    /// `pcap-out:FILE[,format=pcap|pcapng][,rotate=BYTES][,files=N]`: writes a capture.
    PcapOut(PcapOutConfig),
    /// `gen:PROFILE[,OPTION=VALUE]…`: generates frames.
    Gen {
        /// The profile of frames.
        profile: String,
        /// Key and value, in order.
        options: Vec<(String, String)>,
    },
    /// `null`: gives nothing, takes everything.
    Null,
    /// `tap:NAME[,up=no]`: a TAP interface, made if it is not there.
    Tap {
        /// Whether it is set up when it is opened.
        is_set_up: bool,
        /// The interface.
        name: String,
    },
    /// `afpacket:INTERFACE`: a network interface of the system.
    AfPacket { interface: String },
    /// `afxdp:INTERFACE[,mode=auto|skb|native|zerocopy]`: one of the system's, past the network stack.
    AfXdp {
        interface: String,
        /// How frames are received.
        mode: XdpMode,
    },
    /// `patch:NAME,peer=NAME`: a port of this process, mostly of another bridge, is the other end.
    Patch {
        /// Its own name.
        name: String,
        /// That of the other end.
        peer: String,
    },
    /// `geneve:ADDRESS|flow[,key=VNI|flow]…`, `vxlan:…`, `gre:…`, `erspan:…`: a tunnel over the system's network.
    Tunnel(PortTunnelSpec),
}

/// The mode of an AF_XDP socket.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum XdpMode {
    /// The fastest mode of the driver.
    #[default]
    Auto,
    /// From the network stack, whatever the driver.
    Skb,
    /// From the driver, copied.
    Native,
    /// From the driver, into our buffers.
    ZeroCopy,
}

impl XdpMode {
    /// All modes, with their names.
    pub const ALL: [(Self, &str); 4] =
        [(Self::Auto, "auto"), (Self::Skb, "skb"), (Self::Native, "native"), (Self::ZeroCopy, "zerocopy")];

    /// Returns its name in specifications.
    pub fn name(self) -> &'static str {
        Self::ALL.into_iter().find(|(mode, _)| *mode == self).map_or("auto", |(_, name)| name)
    }
}

const SCHEMES: [&str; 12] = [
    "pcap", "pcap-out", "gen", "null", "tap", "afpacket", "afxdp", "patch", "geneve", "vxlan", "gre",
    "erspan",
];

impl PortSpec {
    /// Makes relative paths relative to `folder`.
    pub fn relative_to(&mut self, folder: &Path) {
        match self {
            Self::Pcap(config) => {
                config.file = folder.join(&config.file);
                config.out = config.out.take().map(|out| folder.join(out));
            }
            Self::PcapOut(config) => config.file = folder.join(&config.file),
            Self::Gen { .. }
            | Self::Null
            | Self::Tap { .. }
            | Self::AfPacket { .. }
            | Self::AfXdp { .. }
            | Self::Patch { .. }
            | Self::Tunnel(_) => {}
        }
    }

    /// Returns whether the system delivers frames at its own pace and without end.
    pub fn is_live(&self) -> bool {
        self.interface().is_some() || matches!(self, Self::Tunnel(_))
    }

    /// Returns the tunnel that it is.
    pub fn tunnel(&self) -> Option<&PortTunnelSpec> {
        if let Self::Tunnel(tunnel) = self { Some(tunnel) } else { None }
    }

    /// Returns the interface of the system that it is.
    pub fn interface(&self) -> Option<&str> {
        match self {
            Self::Tap { name: interface, .. }
            | Self::AfPacket { interface }
            | Self::AfXdp { interface, .. } => Some(interface),
            Self::Pcap(_)
            | Self::PcapOut(_)
            | Self::Gen { .. }
            | Self::Null
            | Self::Patch { .. }
            | Self::Tunnel(_) => None,
        }
    }

    /// Returns whether the port distributes its frames over workers itself, by the shares given to [`open_spread`](Self::open_spread).
    pub fn applies_rss(&self) -> bool {
        match self {
            // A pipe can be read only once, by one worker.
            Self::Pcap(config) => config.file.is_file(),
            _ => matches!(self, Self::Gen { .. }),
        }
    }

    /// Opens the port with a queue for each worker.
    ///
    /// # Errors
    /// Where a file, interface or permission is missing.
    pub fn open_all(&self, workers: usize) -> Result<Vec<Box<dyn Port>>, PortError> {
        self.open_spread((0..workers).map(|me| Spread::new(me, workers)).collect())
    }

    /// Opens the port with a queue for each worker, whose share of frames is its element of `spreads`.
    ///
    /// # Errors
    /// As [`open_all`](Self::open_all).
    pub fn open_spread(&self, spreads: Vec<Spread>) -> Result<Vec<Box<dyn Port>>, PortError> {
        let workers = spreads.len();
        self.lock_interface()?;
        fn boxed<P: Port + 'static>(ports: Vec<P>) -> Vec<Box<dyn Port>> {
            ports.into_iter().map(|port| Box::new(port) as _).collect()
        }
        match self {
            _ if workers == 1 => Ok(vec![self.open()?]),
            Self::Null => Ok((0..workers).map(|_| Box::new(NullPort) as _).collect()),
            Self::Pcap(config) if self.applies_rss() => Ok(boxed(PcapPort::open_all(config, spreads)?)),
            Self::Gen { .. } => Ok(boxed(self.generator(spreads)?)),
            #[cfg(target_os = "linux")]
            Self::Tap { name, is_set_up } => {
                Ok(boxed(super::tap::TapPort::open_all(name, *is_set_up, workers)?))
            }
            #[cfg(target_os = "linux")]
            Self::AfPacket { interface } => {
                Ok(boxed(super::afpacket::AfPacketPort::open_all(interface, workers)?))
            }
            #[cfg(target_os = "linux")]
            Self::AfXdp { interface, mode } => {
                Ok(boxed(super::afxdp::AfXdpPort::open_all(interface, *mode, workers)?))
            }
            _ => Ok(boxed(SharedPort::handles(self.open()?, workers))),
        }
    }

    /// Generators of the same frames, each of which gives its worker's share.
    fn generator(&self, spreads: Vec<Spread>) -> Result<Vec<GenPort>, PortError> {
        let Self::Gen { profile, options } = self else { unreachable!("only asked of generators") };
        let config = GenConfig::from_options(profile, options)
            .map_err(|problem| PortError::Spec { spec: self.to_string(), problem })?;
        spreads.into_iter().map(|spread| GenPort::share(config.clone(), spread)).collect()
    }

    /// Opens the port.
    ///
    /// # Errors
    /// Where a file, interface or permission is missing.
    pub fn open(&self) -> Result<Box<dyn Port>, PortError> {
        self.lock_interface()?;
        match self {
            Self::Pcap(config) => Ok(Box::new(PcapPort::open(config)?)),
            Self::PcapOut(config) => Ok(Box::new(PcapOutPort::create(config)?)),
            Self::Gen { .. } => Ok(Box::new(self.generator(vec![Spread::all()])?.remove(0))),
            Self::Null => Ok(Box::new(NullPort)),
            #[cfg(target_os = "linux")]
            Self::Tap { name, is_set_up } => {
                Ok(Box::new(super::tap::TapPort::open_all(name, *is_set_up, 1)?.remove(0)))
            }
            #[cfg(target_os = "linux")]
            Self::AfPacket { interface } => Ok(Box::new(super::afpacket::AfPacketPort::open(interface)?)),
            #[cfg(target_os = "linux")]
            Self::AfXdp { interface, mode } => {
                Ok(Box::new(super::afxdp::AfXdpPort::open_all(interface, *mode, 1)?.remove(0)))
            }
            #[cfg(target_os = "linux")]
            Self::Patch { name, peer } => match super::patch::PatchPort::open(name, peer) {
                Ok(port) => Ok(Box::new(port)),
                Err(problem) => Err(PortError::Spec { spec: self.to_string(), problem }),
            },
            #[cfg(target_os = "linux")]
            Self::Tunnel(tunnel) => Ok(Box::new(super::tunnel::TunnelPort::open(tunnel)?)),
            #[cfg(not(target_os = "linux"))]
            Self::Tap { .. }
            | Self::AfPacket { .. }
            | Self::AfXdp { .. }
            | Self::Patch { .. }
            | Self::Tunnel(_) => Err(PortError::Environment {
                spec: self.to_string(),
                problem: "this kind of port needs Linux".to_owned(),
            }),
        }
    }

    /// Locks an interface of the system against other switches. A TAP interface has only one opener anyway.
    fn lock_interface(&self) -> Result<(), PortError> {
        match self {
            #[cfg(target_os = "linux")]
            Self::AfPacket { interface } | Self::AfXdp { interface, .. } => {
                super::interface_lock::lock(interface, self)
            }
            _ => Ok(()),
        }
    }
}

/// Rejects a capture that is written by two ports, by one while another reads it, or over one of the other `inputs` of the
/// switch: its content would be lost. The error comes with the position of the port that writes it.
pub(crate) fn check_captures(specs: &[PortSpec], inputs: &[PathBuf]) -> Result<(), (usize, PortError)> {
    // The file itself, as far as it is there, by whatever names.
    let place = |file: &Path| {
        let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let path = || Some(folder.canonicalize().ok()?.join(file.file_name()?));
        match file.metadata() {
            Ok(data) => Err((data.dev(), data.ino())),
            Err(_) => Ok(path().unwrap_or_else(|| file.to_owned())),
        }
    };
    let inputs: Vec<_> = inputs.iter().map(|input| place(input)).collect();
    let (mut read, mut written) = (Vec::new(), Vec::<(usize, PathBuf)>::new());
    for (port, spec) in specs.iter().enumerate() {
        match spec {
            PortSpec::Pcap(config) => {
                read.push(place(&config.file));
                written.extend(config.out.clone().map(|out| (port, out)));
            }
            PortSpec::PcapOut(config) => written.extend(config.files().map(|file| (port, file))),
            _ => {}
        }
    }
    for (n, (port, file)) in written.iter().enumerate() {
        let is_device = file.metadata().is_ok_and(|data| !data.is_file());
        let by = match place(file) {
            _ if is_device => continue,
            own if read.contains(&own) => "is read by a port",
            own if inputs.contains(&own) => "is a file that the switch reads",
            own if written[..n].iter().any(|(_, other)| place(other) == own) => "is written by another port",
            _ => continue,
        };
        let problem = format!("{} {by}, and would be lost; give another file", file.display());
        return Err((*port, PortError::Spec { spec: specs[*port].to_string(), problem }));
    }
    Ok(())
}

/// Splits `FILE,key=value,…`. Names of files and interfaces may have commas: the options begin with the first part behind one
/// that has a `=`. Profiles of generators have none, so that all behind the first comma are options.
fn split_options<'a>(scheme: &str, text: &'a str) -> (&'a str, Vec<(&'a str, &'a str)>) {
    let commas = text.match_indices(',').map(|(at, _)| at);
    let is_option = |at: &usize| {
        scheme == "gen" || text[at + 1..].split(',').next().is_some_and(|part| part.contains('='))
    };
    let Some(end) = commas.into_iter().find(is_option) else { return (text, Vec::new()) };
    let options = text[end + 1..].split(',').map(|part| part.split_once('=').unwrap_or((part, "")));
    (&text[..end], options.collect())
}

/// The problem of a text without a known scheme, with the specification that was probably meant.
fn unknown_scheme(text: &str, scheme: &str) -> String {
    let schemes = SCHEMES.join(", ");
    let is_capture = [".pcap", ".pcapng", ".cap"].iter().any(|end| text.to_ascii_lowercase().ends_with(end));
    // Linux's limit, and the characters that it refuses in a name.
    let is_interface =
        (1..16).contains(&text.len()) && !text.contains(['/', ':']) && !text.contains(char::is_whitespace);
    let hint = match flowlane::named_enum::nearest(scheme, SCHEMES) {
        Some(name) => format!("; did you mean `{name}`?"),
        None if is_capture => format!("; did you mean `pcap:{text}` (or `pcap-out:{text}`)?"),
        None if is_interface => {
            format!("; did you mean `afpacket:{text}` (or `afxdp:{text}`, `tap:{text}`)?")
        }
        None => ".".to_owned(),
    };
    format!("there is no kind of port `{scheme}`{hint} There are {schemes}")
}

/// Reads the file and options behind `pcap-out:`, as [`pcap`].
fn pcap_out(file: &str, options: &[(&str, &str)]) -> Result<PcapOutConfig, (String, Option<String>)> {
    let mut config = PcapOutConfig::new(file);
    let mut files = None;
    for &(key, value) in options {
        let wrong = |problem: &str| Err((key.to_owned(), Some(format!("`{key}={value}`: {problem}"))));
        match (key, value) {
            ("format", "pcap") => config.format = Some(FileFormat::Pcap),
            ("format", "pcapng") => config.format = Some(FileFormat::Pcapng),
            ("rotate", _) => match bytes(value) {
                Some(bytes @ 1..) => config.rotation = Some(Rotation { bytes, files: Rotation::FILES }),
                _ => return wrong("bytes are expected, such as 500000, 64K, 100M or 2G"),
            },
            ("files", _) => match value.parse() {
                Ok(number @ 2..=Rotation::FILES_MAX) => files = Some(number),
                _ => return wrong("a number from 2 to 1000 is expected"),
            },
            (other, _) => return Err((format!("{other}={value}"), None)),
        }
    }
    match (&mut config.rotation, files) {
        (Some(rotation), Some(files)) => rotation.files = files,
        (None, Some(files)) => {
            let problem =
                format!("`files={files}` needs `rotate=BYTES`, which says when another file is begun");
            return Err(("files".to_owned(), Some(problem)));
        }
        (_, None) => {}
    }
    Ok(config)
}

/// Reads a number of bytes, with a unit of 1024 or its powers, if it has one.
fn bytes(text: &str) -> Option<u64> {
    let (number, shift) = match text.as_bytes().last()? {
        b'K' | b'k' => (&text[..text.len() - 1], 10),
        b'M' | b'm' => (&text[..text.len() - 1], 20),
        b'G' | b'g' => (&text[..text.len() - 1], 30),
        _ => (text, 0),
    };
    number.parse::<u64>().ok()?.checked_mul(1 << shift)
}

/// Reads the file and options behind `pcap:`. An error is the wrong option, and its problem unless it is unknown.
fn pcap(file: &str, options: &[(&str, &str)]) -> Result<PcapConfig, (String, Option<String>)> {
    let mut config = PcapConfig::new(file);
    for &(key, value) in options {
        let wrong = |problem: &str| (key.to_owned(), Some(format!("`{key}={value}`: {problem}")));
        let number = || value.parse::<u64>().map_err(|_| wrong("a number is expected"));
        match key {
            "loop" => config.loops = number()?,
            "rate" if number()? == 0 => return Err(wrong("a rate is at least 1")),
            "rate" => config.rate_pps = Some(number()?),
            "out" if !value.is_empty() => config.out = Some(PathBuf::from(value)),
            _ => return Err((key.to_owned(), None)),
        }
    }
    Ok(config)
}

impl FromStr for PortSpec {
    type Err = PortError;

    fn from_str(text: &str) -> Result<Self, PortError> {
        let fail = |problem: String| PortError::Spec { spec: text.to_owned(), problem };
        let (scheme, rest) = text.split_once(':').unwrap_or((text, ""));
        let (first, options) = split_options(scheme, rest);
        let named = |what: &str| match first {
            "" => Err(fail(format!("the {what} is missing: write `{scheme}:{}`", what.to_uppercase()))),
            name => Ok(name.to_owned()),
        };
        let unknown = |option: &str, known: &[&str]| {
            let problem = match known {
                [] => format!("`{option}`: `{scheme}` has no options"),
                known => format!("there is no option `{option}`; there are {}", known.join(", ")),
            };
            Err(fail(problem))
        };
        if let Some(kind) = PortTunnelSpec::KINDS.into_iter().find(|kind| kind.name() == scheme) {
            let tunnel = PortTunnelSpec::parse(kind, first, &options);
            return tunnel.map(Self::Tunnel).map_err(|error| fail(error.to_string()));
        }
        match scheme {
            "pcap" => match pcap(&named("file")?, &options) {
                Ok(config) => Ok(Self::Pcap(config)),
                Err((_, Some(problem))) => Err(fail(problem)),
                Err((other, None)) => unknown(&other, &["loop=N", "rate=PPS", "out=FILE"]),
            },
            "pcap-out" => match pcap_out(&named("file")?, &options) {
                Ok(config) => Ok(Self::PcapOut(config)),
                Err((_, Some(problem))) => Err(fail(problem)),
                Err((other, None)) => {
                    unknown(&other, &["format=pcap", "format=pcapng", "rotate=BYTES", "files=N"])
                }
            },
            "gen" => {
                let profile = named("profile")?;
                let options: Vec<_> =
                    options.into_iter().map(|(k, v)| (k.to_owned(), v.to_owned())).collect();
                // Errors of the profile are reported when a configuration is checked.
                GenConfig::from_options(&profile, &options).map_err(fail)?;
                Ok(Self::Gen { profile, options })
            }
            "afxdp" => {
                let interface = named("interface")?;
                let Some(&(key, value)) = options.last() else {
                    return Ok(Self::AfXdp { interface, mode: XdpMode::Auto });
                };
                match XdpMode::ALL.into_iter().find(|(_, name)| *name == value) {
                    Some((mode, _)) if key == "mode" => Ok(Self::AfXdp { interface, mode }),
                    _ => unknown(&format!("{key}={value}"), &["mode=auto|skb|native|zerocopy"]),
                }
            }
            "patch" => match options[..] {
                [("peer", peer)] if !peer.is_empty() => {
                    Ok(Self::Patch { name: named("name")?, peer: peer.to_owned() })
                }
                [] => Err(fail("the other end is missing: write `patch:NAME,peer=NAME`".to_owned())),
                [(other, _), ..] => unknown(other, &["peer=NAME"]),
            },
            "tap" if is_set_up(&options).is_none() => unknown(options[0].0, &["up=yes", "up=no"]),
            "tap" => Ok(Self::Tap { name: named("name")?, is_set_up: is_set_up(&options) == Some(true) }),
            _ if !options.is_empty() => unknown(options[0].0, &[]),
            "null" => Ok(Self::Null),
            "afpacket" => Ok(Self::AfPacket { interface: named("interface")? }),
            other => Err(fail(unknown_scheme(text, other))),
        }
    }
}

/// Reads the options of a TAP interface; none where there is another one.
fn is_set_up(options: &[(&str, &str)]) -> Option<bool> {
    match options {
        [] | [("up", "yes")] => Some(true),
        [("up", "no")] => Some(false),
        _ => None,
    }
}

impl fmt::Display for PortSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pcap(config) => {
                write!(f, "pcap:{}", config.file.display())?;
                if config.loops != 1 {
                    write!(f, ",loop={}", config.loops)?;
                }
                if let Some(rate) = config.rate_pps {
                    write!(f, ",rate={rate}")?;
                }
                config.out.as_ref().map_or(Ok(()), |out| write!(f, ",out={}", out.display()))
            }
            Self::PcapOut(PcapOutConfig { file, format, rotation }) => {
                write!(f, "pcap-out:{}", file.display())?;
                match format {
                    None => Ok(()),
                    Some(FileFormat::Pcap) => f.write_str(",format=pcap"),
                    Some(FileFormat::Pcapng) => f.write_str(",format=pcapng"),
                }?;
                rotation
                    .map_or(Ok(()), |Rotation { bytes, files }| write!(f, ",rotate={bytes},files={files}"))
            }
            Self::Gen { profile, options } => {
                write!(f, "gen:{profile}")?;
                options.iter().try_for_each(|(key, value)| match value.as_str() {
                    "" => write!(f, ",{key}"),
                    value => write!(f, ",{key}={value}"),
                })
            }
            Self::Null => f.write_str("null"),
            Self::Tap { name, is_set_up: true } => write!(f, "tap:{name}"),
            Self::Tap { name, is_set_up: false } => write!(f, "tap:{name},up=no"),
            Self::AfPacket { interface } => write!(f, "afpacket:{interface}"),
            Self::AfXdp { interface, mode: XdpMode::Auto } => write!(f, "afxdp:{interface}"),
            Self::AfXdp { interface, mode } => write!(f, "afxdp:{interface},mode={}", mode.name()),
            Self::Patch { name, peer } => write!(f, "patch:{name},peer={peer}"),
            Self::Tunnel(tunnel) => tunnel.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_printed_is_parsed_back() {
        for text in [
            "pcap:a/b.pcap",
            "pcap:x.pcapng,loop=0,rate=1000,out=y.pcap",
            "pcap-out:z.pcapng",
            "pcap-out:z,format=pcapng",
            "gen:udp,flows=10,locality=pareto:1,0.1",
            "null",
            "tap:flow0",
            "afpacket:eth0",
            "afxdp:eth0",
            "afxdp:eth0,mode=native",
            "afpacket:eth0,1",
            "tap:a,b",
            "afxdp:eth0,1,mode=skb",
            "geneve:192.0.2.7,key=flow,csum=true",
            "vxlan:2001:db8::7,key=5000,port=8472",
            "geneve:flow,key=flow",
            "pcap:a,b.pcap,loop=2,out=c",
            "pcap-out:a,b.pcap",
        ] {
            assert_eq!(text.parse::<PortSpec>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn errors_say_what_there_is_instead() {
        let problem = |text: &str| text.parse::<PortSpec>().unwrap_err().to_string();
        assert!(problem("eth1").contains("did you mean `afpacket:eth1` (or `afxdp:eth1`"));
        assert!(problem("trace.pcap").contains("did you mean `pcap:trace.pcap`"));
        assert!(problem("nul").contains("did you mean `null`?"));
        assert!(!problem("/dev/net/tun").contains("did you mean"));
        assert!(problem("pcpa:x").contains("did you mean `pcap`?"));
        assert!(problem("pcap:").contains("write `pcap:FILE`"));
        assert!(problem("pcap:x,lop=3").contains("loop=N"));
        assert!(problem("pcap:x,loop=many").contains("a number is expected"));
        assert!(problem("pcap:x,rate=0").contains("at least 1"));
        assert!(problem("afpacket:x,y=1").contains("`afpacket` has no options"));
        assert!(problem("tap:x,y=1").contains("no option `y`; there are up=yes, up=no"));
        assert!(problem("tap:x,up=perhaps").contains("there are up=yes, up=no"));
        assert!(problem("afxdp:x,mode=fast").contains("no option `mode=fast`; there are mode=auto|skb"));
        assert!(problem("geneve:eth0").contains("`eth0` is neither an address of the other end nor `flow`"));
        assert!(
            problem("vxlan:flow,vni=7").contains("there is no option `vni` of vxlan; there are local, key")
        );
        assert!(problem("gen:nothing").contains("there is no profile"));
    }
}
