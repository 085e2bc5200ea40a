//! The generator: a port that frames come from without a network, for tests, benchmarks and trying things out.
//!
//! `gen:PROFILE[,flows=N][,size=BYTES][,count=N][,rate=PPS][,locality=…][,seed=N][,rules=N]`
//!
//! | profile | frames |
//! |---|---|
//! | `udp`, `tcp` | IPv4 |
//! | `ipv6` | IPv6, UDP and TCP |
//! | `vlan` | one 802.1Q tag, IPv4, UDP and TCP |
//! | `mix` | of 20 flows 12 IPv4, 3 IPv6, 2 with one and 1 with two tags, 1 ARP, 1 MPLS; of 12 frames 7 short, 4 of 590 bytes, 1 of 1514 (simple IMIX), where `size` does not say otherwise |
//! | `acl`, `fw`, … ([`Profile`]) | frames that hit the generated rule set of that profile of `rules` rules (1000) and this seed |
//!
//! `flows` distinct frames (1000) are built once, side by side in one arena; a packet is a draw by the
//! `locality` (`uniform`) and a copy. `size` is the frame's length without frame check sequence, at least 60,
//! more where headers need it. `count` frames are given (0: no end), at most `rate` a second (0: as fast as
//! they are taken). The same options give the same frames in the same order. Frames that are sent to the
//! port are counted and forgotten.

use super::{Port, PortError, Received};
use crate::packet::{Frame, Frames, Spread};
use flowlane::generate::packet::FRAME_MIN;
use flowlane::generate::{
    Locality, Profile, Random, RuleConfig, Sampler, Trace, TraceConfig, build_frame, generate_rules,
};
use flowlane::packet::Field;
use flowlane::rule::{Match, Rule};
use std::fmt;
use std::time::{Duration, Instant, SystemTime};

/// The longest frame that may be asked for: a jumbo frame.
const SIZE_MAX: usize = 9216;

/// The most bytes of frames that are kept.
const ARENA_BYTES_MAX: usize = 1 << 30;

/// Frames due after a longer pause are skipped, so that a delayed worker is not flooded.
const CATCH_UP_MAX: Duration = Duration::from_millis(10);

/// A kind of frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GenProfile {
    /// UDP over IPv4.
    Udp,
    /// TCP over IPv4.
    Tcp,
    /// UDP and TCP over IPv6.
    Ipv6,
    /// UDP and TCP over IPv4 in a VLAN.
    Vlan,
    /// A mixture of headers and lengths.
    Mix,
    /// Frames for a generated rule set.
    Rules(Profile),
}

impl fmt::Display for GenProfile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            GenProfile::Udp => "udp",
            GenProfile::Tcp => "tcp",
            GenProfile::Ipv6 => "ipv6",
            GenProfile::Vlan => "vlan",
            GenProfile::Mix => "mix",
            GenProfile::Rules(profile) => profile.name(),
        })
    }
}

/// The configuration of a generator port.
#[derive(Clone, PartialEq, Debug)]
pub struct GenConfig {
    /// The kind of frames.
    pub profile: GenProfile,
    /// Number of distinct frames.
    pub flows: usize,
    /// Length of a frame in bytes, without frame check sequence; `None`: the profile's.
    pub size: Option<usize>,
    /// Number of frames after which the port is finished; 0: never.
    pub count: u64,
    /// The most frames a second; 0: no limit.
    pub rate_pps: u64,
    /// How often the same frame comes again.
    pub locality: Locality,
    /// Another seed, other frames.
    pub seed: u64,
    /// Number of rules in the rule set that frames are generated for.
    pub rules: usize,
}

impl GenConfig {
    /// 1000 flows, uniform, without end or limit, seed 1.
    pub fn new(profile: GenProfile) -> Self {
        Self {
            profile,
            flows: 1000,
            size: None,
            count: 0,
            rate_pps: 0,
            locality: Locality::Uniform,
            seed: 1,
            rules: 1000,
        }
    }

    /// Reads the text after `gen:`: the profile, and options split at commas and the first `=` (an empty
    /// value where there is none). Numbers may end in k, M or G.
    ///
    /// # Errors
    /// The mistake and the alternatives, for [`PortError::Spec`].
    pub fn from_options(profile: &str, options: &[(String, String)]) -> Result<Self, String> {
        let profile = match profile {
            "udp" => GenProfile::Udp,
            "tcp" => GenProfile::Tcp,
            "ipv6" => GenProfile::Ipv6,
            "vlan" => GenProfile::Vlan,
            "mix" => GenProfile::Mix,
            rules => GenProfile::Rules(rules.parse().map_err(|_| {
                let profiles = Profile::ALL.map(Profile::name).join(", ");
                format!("there is no profile `{rules}`; there are udp, tcp, ipv6, vlan, mix, {profiles}")
            })?),
        };
        let mut config = Self::new(profile);
        let mut options = options.iter().peekable();
        while let Some((key, value)) = options.next() {
            match key.as_str() {
                "flows" => config.flows = number(key, value, 1, 1 << 24)? as usize,
                "size" => config.size = Some(number(key, value, FRAME_MIN as u64, SIZE_MAX as u64)? as usize),
                "count" => config.count = number(key, value, 0, u64::MAX)?,
                "rate" => config.rate_pps = number(key, value, 0, 1_000_000_000)?,
                "seed" => config.seed = number(key, value, 0, u64::MAX)?,
                "rules" => config.rules = number(key, value, 1, 1 << 24)? as usize,
                "locality" => {
                    let mut text = value.clone();
                    // pareto:A,B has a comma of its own.
                    if let Some((rest, _)) =
                        options.next_if(|(k, v)| v.is_empty() && k.parse::<f64>().is_ok())
                    {
                        text = format!("{text},{rest}");
                    }
                    config.locality = text.parse().map_err(|e| format!("{e}"))?;
                }
                other => {
                    return Err(format!(
                        "there is no option `{other}`; there are flows, size, count, rate, locality, seed and rules"
                    ));
                }
            }
        }
        Ok(config)
    }
}

impl fmt::Display for GenConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "gen:{},flows={}", self.profile, self.flows)?;
        if let Some(size) = self.size {
            write!(f, ",size={size}")?;
        }
        let Self { count, rate_pps, locality, seed, rules, .. } = self;
        write!(f, ",count={count},rate={rate_pps},locality={locality},seed={seed},rules={rules}")
    }
}

fn number(key: &str, text: &str, low: u64, high: u64) -> Result<u64, String> {
    let (digits, unit) = match text.chars().last() {
        Some('k') => (&text[..text.len() - 1], 1_000),
        Some('M') => (&text[..text.len() - 1], 1_000_000),
        Some('G') => (&text[..text.len() - 1], 1_000_000_000),
        _ => (text, 1),
    };
    let value = digits.parse::<u64>().ok().and_then(|n| n.checked_mul(unit));
    value.filter(|n| (low..=high).contains(n)).ok_or_else(|| {
        format!("{key}={text}: write a number from {low} to {high}, as in {key}={}", low.max(1))
    })
}

/// A generator port.
#[derive(Debug)]
pub struct GenPort {
    /// Frames side by side, each from a multiple of 64 bytes on.
    arena: Vec<u8>,
    places: Vec<Place>,
    sampler: Sampler,
    random: Random,
    /// Which frames are this worker's.
    mine: Vec<bool>,
    /// Frames that are still to come; none: no end.
    left: Option<u64>,
    pace: Option<Pace>,
    sent_frames: u64,
    sent_bytes: u64,
}

/// Where a frame lies in the arena.
#[derive(Clone, Copy, Debug)]
struct Place {
    start: u32,
    len: u32,
}

impl GenPort {
    /// Builds the frames: about a microsecond each, and up to 1 GiB.
    ///
    /// # Errors
    /// Where the flows need more memory than that, or the rules do not yield enough.
    pub fn new(config: GenConfig) -> Result<Self, PortError> {
        Self::share(config, Spread::all())
    }

    /// Makes a generator that draws the same frames, and gives those that are for one worker.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn share(config: GenConfig, mut spread: Spread) -> Result<Self, PortError> {
        let fail = |problem: String| PortError::Spec { spec: config.to_string(), problem };
        // The shortest possible: whether there is more is seen when the frames are there.
        let frame_bytes = config.size.unwrap_or(FRAME_MIN).next_multiple_of(64);
        if config.flows.saturating_mul(frame_bytes) > ARENA_BYTES_MAX {
            let flows = ARENA_BYTES_MAX / frame_bytes;
            return Err(fail(format!("the frames need more than 1 GiB; {flows} flows of this size fit")));
        }
        let trace = TraceConfig { flows: Some(config.flows), seed: config.seed, ..TraceConfig::new(0) };
        let rules = rules_of(&config).map_err(&fail)?;
        let trace = Trace::generate(&rules, &trace).map_err(|e| fail(e.to_string()))?;
        let (mut arena, mut places, mut frame) = (Vec::new(), Vec::new(), Vec::new());
        let mut mine = Vec::new();
        let mut random = Random::for_purpose(config.seed, "gen port");
        for flow in trace.flows() {
            build_frame(
                &flow.key,
                config.size.unwrap_or_else(|| size_of_frame(config.profile, &mut random)),
                &mut frame,
            );
            if arena.len() + frame.len() > ARENA_BYTES_MAX {
                let flows = places.len();
                return Err(fail(format!("the frames need more than 1 GiB; {flows} flows would fit")));
            }
            mine.push(spread.is_mine(&frame, 0));
            places.push(Place { start: arena.len() as u32, len: frame.len() as u32 });
            arena.extend(&frame);
            arena.resize(arena.len().next_multiple_of(64), 0);
        }
        Ok(Self {
            arena,
            sampler: Sampler::new(config.locality, places.len() as u32),
            places,
            mine,
            random,
            left: (config.count > 0).then_some(config.count),
            pace: (config.rate_pps > 0).then(|| Pace::new(config.rate_pps)),
            sent_frames: 0,
            sent_bytes: 0,
        })
    }

    /// Frames that were sent to this port.
    pub fn sent_frames(&self) -> u64 {
        self.sent_frames
    }

    pub fn sent_bytes(&self) -> u64 {
        self.sent_bytes
    }
}

/// The rules that a profile's frames are drawn from, each equally often.
fn rules_of(config: &GenConfig) -> Result<Vec<Rule>, String> {
    let stack = |eth_type: u128, protocol: u128, tags: usize| {
        let mut m = Match::any();
        m.set(Field::EthType, eth_type).set(Field::IpFrag, 0);
        if protocol != 0 {
            m.set(Field::NwProto, protocol);
        }
        for field in [Field::VlanTci, Field::VlanTci1].into_iter().take(tags) {
            m.set_masked(field, 0x1000, 0x1000);
        }
        Rule::new(m, Vec::new())
    };
    let (udp, tcp) = (|| stack(0x0800, 17, 0), || stack(0x0800, 6, 0));
    Ok(match config.profile {
        GenProfile::Udp => vec![udp()],
        GenProfile::Tcp => vec![tcp()],
        GenProfile::Ipv6 => vec![stack(0x86dd, 17, 0), stack(0x86dd, 6, 0)],
        GenProfile::Vlan => vec![stack(0x0800, 17, 1), stack(0x0800, 6, 1)],
        GenProfile::Mix => {
            let mut arp = Match::any();
            arp.set(Field::EthType, 0x0806);
            let mut mpls = Match::any();
            mpls.set(Field::EthType, 0x8847);
            let four = std::iter::repeat_with(tcp).take(6).chain(std::iter::repeat_with(udp).take(4));
            let others = [
                stack(0x0800, 1, 0),
                stack(0x0800, 132, 0),
                stack(0x86dd, 6, 0),
                stack(0x86dd, 17, 0),
                stack(0x86dd, 58, 0),
                stack(0x0800, 6, 1),
                stack(0x86dd, 17, 1),
                stack(0x0800, 6, 2),
                Rule::new(arp, Vec::new()),
                Rule::new(mpls, Vec::new()),
            ];
            four.chain(others).collect()
        }
        GenProfile::Rules(profile) => {
            let rules = RuleConfig { seed: config.seed, ..RuleConfig::new(profile, config.rules) };
            generate_rules(&rules).map_err(|e| e.to_string())?
        }
    })
}

fn size_of_frame(profile: GenProfile, random: &mut Random) -> usize {
    match (profile, random.below(12)) {
        (GenProfile::Mix, 7..=10) => 590,
        (GenProfile::Mix, 11) => 1514,
        _ => FRAME_MIN,
    }
}

impl Port for GenPort {
    fn receive(&mut self, frames: &mut Frames) -> Result<Received, PortError> {
        if self.left == Some(0) {
            return Ok(Received::Finished);
        }
        let room = (frames.capacity() - frames.len()) as u64;
        let wanted = self.pace.as_mut().map_or(room, |pace| pace.take(room)).min(self.left.unwrap_or(room));
        if wanted == 0 {
            return Ok(if room == 0 { Received::More } else { Received::Idle });
        }
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        for _ in 0..wanted {
            let drawn = self.sampler.draw(&mut self.random) as usize;
            if !self.mine[drawn] {
                continue;
            }
            let place = self.places[drawn];
            let Some(frame) = frames.next_frame() else { break };
            let start = place.start as usize;
            frame.fill(&self.arena[start..start + place.len as usize]);
            frame.time_ns = now.as_nanos() as u64;
        }
        self.left = self.left.map(|left| left - wanted);
        Ok(if self.left == Some(0) { Received::Finished } else { Received::More })
    }

    fn send(&mut self, frame: &Frame) -> Result<bool, PortError> {
        self.sent_frames += 1;
        self.sent_bytes += frame.len() as u64;
        Ok(true)
    }
}

/// Says how many frames are due.
#[derive(Debug)]
struct Pace {
    rate_pps: u64,
    /// When counting began, and frames since.
    start: Instant,
    given: u64,
}

impl Pace {
    fn new(rate_pps: u64) -> Self {
        Self { rate_pps, start: Instant::now(), given: 0 }
    }

    /// Up to `most` frames.
    fn take(&mut self, most: u64) -> u64 {
        self.take_at(Instant::now(), most)
    }

    fn take_at(&mut self, now: Instant, most: u64) -> u64 {
        let nanos = u128::from(self.given + 1) * 1_000_000_000 / u128::from(self.rate_pps);
        let latest = Duration::from_nanos(nanos as u64) + CATCH_UP_MAX;
        if now.duration_since(self.start) > latest {
            self.start = now - latest;
        }
        let elapsed = now.duration_since(self.start);
        let due = (elapsed.as_nanos() * u128::from(self.rate_pps) / 1_000_000_000) as u64;
        let taken = due.saturating_sub(self.given).min(most);
        self.given += taken;
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{HashMap, HashSet};

    fn config(profile: &str, options: &str) -> Result<GenConfig, String> {
        let pair = |option: &str| {
            let (key, value) = option.split_once('=').unwrap_or((option, ""));
            (key.to_owned(), value.to_owned())
        };
        let options: Vec<_> = options.split(',').filter(|o| !o.is_empty()).map(pair).collect();
        GenConfig::from_options(profile, &options)
    }

    fn port(profile: &str, options: &str) -> GenPort {
        GenPort::new(config(profile, options).expect(options)).expect(profile)
    }

    fn frames(port: &mut GenPort, most: usize) -> Vec<Vec<u8>> {
        let (mut out, mut burst) = (Vec::new(), Frames::new(32));
        while out.len() < most {
            burst.clear();
            let received = port.receive(&mut burst).expect("no failure");
            out.extend(burst.iter().map(|f| f.bytes().to_vec()));
            if received == Received::Finished {
                break;
            }
        }
        out
    }

    #[test]
    fn options_are_read() {
        let got = config("mix", "flows=10k,size=128,count=7,rate=2M,locality=zipf:1.1,seed=5,rules=20");
        let want = GenConfig {
            flows: 10_000,
            size: Some(128),
            count: 7,
            rate_pps: 2_000_000,
            locality: Locality::Zipf(1.1),
            seed: 5,
            rules: 20,
            ..GenConfig::new(GenProfile::Mix)
        };
        assert_eq!(got, Ok(want));
        for text in ["locality=pareto:1,0.1,flows=3", "locality=pareto:1:0.1,flows=3"] {
            let got = config("acl", text).expect(text);
            assert_eq!((got.locality, got.flows), (Locality::Pareto { a: 1.0, b: 0.1 }, 3));
        }
        for (profile, options, want) in [
            ("upd", "", "there is no profile `upd`"),
            ("udp", "flow=3", "there is no option `flow`"),
            ("udp", "flows=0", "flows=0: write a number from 1"),
            ("udp", "size=59", "from 60 to 9216"),
            ("udp", "count", "count=: write a number"),
            ("udp", "locality=zipf", "`zipf` is no locality"),
        ] {
            let error = config(profile, options).expect_err(options);
            assert!(error.contains(want), "{error}");
        }
    }

    #[test]
    fn every_profile_gives_valid_frames() {
        let profiles = ["udp", "tcp", "ipv6", "vlan", "mix"].into_iter();
        for profile in profiles.chain(Profile::ALL.map(Profile::name)) {
            let frames = frames(&mut port(profile, "count=3000"), usize::MAX);
            assert_eq!(frames.len(), 3000, "{profile}");
            assert!(frames.iter().collect::<HashSet<_>>().len() > 900, "{profile}");
            for frame in &frames {
                assert!(frame.len() >= 60, "{profile}");
                etherparse::SlicedPacket::from_ethernet(frame).unwrap_or_else(|e| panic!("{profile}: {e}"));
            }
        }
    }

    #[test]
    fn the_same_options_give_the_same_frames() {
        let text = "flows=50,count=200,locality=zipf:1";
        let first = frames(&mut port("mix", text), 200);
        assert_eq!(first, frames(&mut port("mix", text), 200));
        assert_ne!(first, frames(&mut port("mix", "flows=50,count=200,locality=zipf:1,seed=2"), 200));
    }

    #[test]
    fn flows_sizes_and_locality_are_as_asked_for() {
        let mut counts: HashMap<Vec<u8>, u32> = HashMap::new();
        let all = frames(&mut port("udp", "flows=100,size=200,count=20k,locality=zipf:1"), usize::MAX);
        all.into_iter().for_each(|f| *counts.entry(f).or_default() += 1);
        assert_eq!(counts.len(), 100);
        assert!(counts.keys().all(|f| f.len() == 200));
        assert!(counts.values().any(|&c| c > 3500)); // 20000 / H(100)
        let mix = frames(&mut port("mix", "flows=2k,count=12k"), usize::MAX);
        let long = mix.iter().filter(|f| f.len() == 1514).count();
        assert!((800..1200).contains(&long), "{long}");
    }

    #[test]
    fn a_port_without_count_never_ends_and_forgets_what_is_sent() {
        let mut port = port("tcp", "flows=3");
        assert_eq!(frames(&mut port, 10_000).len(), 10_016);
        let mut frame = Frame::default();
        frame.fill(&[0; 60]);
        assert!((0..5).all(|_| port.send(&frame).is_ok_and(|taken| taken)));
        assert_eq!((port.sent_frames(), port.sent_bytes()), (5, 300));
        let mut full = Frames::new(0);
        assert!(matches!(port.receive(&mut full), Ok(Received::More)));
    }

    #[test]
    fn too_large_an_arena_is_refused() {
        let error = GenPort::new(config("udp", "flows=200k,size=9216").expect("options")).expect_err("2 GB");
        assert!(error.to_string().contains("more than 1 GiB"), "{error}");
    }

    #[test]
    fn the_pace_follows_the_clock_and_forgives_a_pause() {
        let mut pace = Pace::new(1000);
        let at = |ms: u64| Duration::from_millis(ms);
        let start = pace.start;
        assert_eq!(pace.take_at(start, 32), 0);
        assert_eq!(pace.take_at(start + at(5), 32), 5);
        assert_eq!(pace.take_at(start + at(8), 2), 2);
        assert_eq!(pace.take_at(start + at(8), 32), 1);
        // After a pause of a second: the frames of the last ten milliseconds, and the next frame.
        assert_eq!(pace.take_at(start + at(1008), 100), 11);
        assert_eq!(pace.take_at(start + at(1010), 100), 2);
        let mut slow = Pace::new(1);
        let begin = slow.start;
        let taken: u64 = (0..=5000).step_by(7).map(|ms| slow.take_at(begin + at(ms), 1)).sum();
        assert!((4..=5).contains(&taken), "{taken}");
    }
}
