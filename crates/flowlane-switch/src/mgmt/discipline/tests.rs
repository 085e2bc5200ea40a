//! Requests against those that Open vSwitch 3.1 makes for the same settings, recorded from its netlink socket (interface 3, MTU 1500).

use netlink_packet_core::Emitable;
use netlink_packet_route::tc::TcMessage;

use super::*;

fn hex(message: &TcMessage) -> String {
    let mut bytes = vec![0; message.buffer_len()];
    message.emit(&mut bytes);
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn discipline(qos: &QosSection) -> Discipline {
    Discipline::of(qos, 1500, 10_000_000_000)
}

fn with_queues(kind: QosKind, max_rate_bps: u64) -> Discipline {
    let first = QueueSection {
        number: 1,
        min_rate_bps: Some(1_000_000),
        max_rate_bps: Some(2_000_000),
        ..QueueSection::default()
    };
    let second = QueueSection {
        number: 5,
        max_rate_bps: Some(5_000_000),
        burst_bits: Some(80_000),
        priority: Some(3),
        ..QueueSection::default()
    };
    let (max_rate_bps, queue) = (Some(max_rate_bps), vec![first, second]);
    discipline(&QosSection { max_rate_bps, queue, ..QosSection::new(kind) })
}

#[test]
fn disciplines_are_asked_for_as_open_vswitch_does() {
    let new = QosSection::new;
    let sfq = QosSection { quantum_bytes: Some(1000), perturb_s: Some(5), ..new(QosKind::Sfq) };
    let (target_us, interval_us) = (Some(3000), Some(90_000));
    let codel = QosSection { target_us, limit_packets: Some(500), interval_us, ..new(QosKind::Codel) };
    let fq_codel = QosSection { flows: Some(10), quantum_bytes: Some(300), ..new(QosKind::FqCodel) };
    let netem = QosSection { latency_us: Some(10_000), loss_percent: Some(10), ..new(QosKind::Netem) };
    let (limit_packets, loss_percent) = (Some(7), Some(100));
    let lossy = QosSection { limit_packets, loss_percent, ..netem.clone() };
    let begin = "000000000300000000000100ffffffff00000000";
    for (qos, recorded) in [
        (new(QosKind::Htb), "08000100687462001c00020018000200030000000a000000010000000000000000000000"),
        (new(QosKind::Hfsc), "0900010068667363000000000600020001000000"),
        (new(QosKind::Sfq), "080001007366710018000200dc0500000a000000000000000000000000000000"),
        (sfq, "080001007366710018000200e803000005000000000000000000000000000000"),
        (
            new(QosKind::Codel),
            "0a000100636f64656c0000001c0002000800010088130000080002000028000008000300a0860100",
        ),
        (codel, "0a000100636f64656c0000001c00020008000100b80b000008000200f401000008000300905f0100"),
        (
            new(QosKind::FqCodel),
            "0d00010066715f636f64656c000000002c000200080001008813000008000200002800000800030040420f00\
             08000500000400000800060\
             0ea050000",
        ),
        (
            fq_codel,
            "0d00010066715f636f64656c000000002c000200080001008813000008000200002800000800030040420f00\
             080005000a000000080006002c010000",
        ),
        (
            new(QosKind::Netem),
            "0a0001006e6574656d0000001c00020000000000e803000000000000000000000000000000000000",
        ),
        (netem, "0a0001006e6574656d0000001c0002005a620200e803000099999919000000000000000000000000"),
        (lossy, "0a0001006e6574656d0000001c0002005a62020007000000ffffffff000000000000000000000000"),
    ] {
        let asked = hex(&encode::discipline(3, &discipline(&qos)));
        assert_eq!(asked, format!("{begin}{recorded}"), "{:?}", qos.kind);
    }
}

#[test]
fn queues_of_hfsc_are_asked_for_as_open_vswitch_does() {
    let hfsc = with_queues(QosKind::Hfsc, 20_000_000);
    let root = "0000000003000000feff010000000100000000000900010068667363000000003400020010000100\
                0000000000000000a025260010000200000000000000000\
                0a0252600100003000000000000000000a0252600";
    assert_eq!(hex(&encode::shared(3, &hfsc, hfsc.root.as_ref().unwrap())), root);
    let one = "000000000300000002000100feff0100000000000900010068667363000000003400020010000100\
               000000000000000048e801001000020000000000000000\
               0048e8010010000300000000000000000090d00300";
    assert_eq!(hex(&encode::queue(3, &hfsc, 1, &hfsc.queues[&1])), one);
    let five = "000000000300000006000100feff0100000000000900010068667363000000003400020010000100\
                000000000000000001000000100002000000000000000000010000001000030000000000000000006889\
                0900";
    assert_eq!(hex(&encode::queue(3, &hfsc, 5, &hfsc.queues[&5])), five);
}

/// Open vSwitch also sends tables of rates for kernels before Linux 3.8, and leaves the link layer (`01` here) to them.
#[test]
fn queues_of_htb_are_asked_for_as_open_vswitch_does() {
    let htb = with_queues(QosKind::Htb, 10_000_000);
    let begin = |handle: &str, parent: &str| {
        format!("0000000003000000{handle}0100{parent}0000000008000100687462003400020030000100")
    };
    let spec = |rate: &str| format!("0301000000003c00{rate}");
    let queue = |number| hex(&encode::queue(3, &htb, number, &htb.queues[&number]));
    let root = hex(&encode::shared(3, &htb, htb.root.as_ref().unwrap()));
    let rate = spec("d0121300");
    let burst = "3e4900003e490000000000000000000000000000";
    assert_eq!(root, format!("{}{rate}{rate}{burst}", begin("feff", "00000100")));
    let (min, max) = (spec("48e80100"), spec("90d00300"));
    let burst = "acfb0200d67d0100000000000000000000000000";
    assert_eq!(queue(1), format!("{}{min}{max}{burst}", begin("0200", "feff0100")));
    let (min, max) = (spec("dc050000"), spec("68890900"));
    let burst = "0a75350690d00300dc0500000000000003000000";
    assert_eq!(queue(5), format!("{}{min}{max}{burst}", begin("0600", "feff0100")));
}

#[test]
fn rates_beyond_32_bits_have_attributes_of_their_own() {
    let fast =
        discipline(&QosSection { max_rate_bps: Some(80_000_000_000), ..QosSection::new(QosKind::Htb) });
    let root = hex(&encode::shared(3, &fast, fast.root.as_ref().unwrap()));
    let rate: String = 10_000_000_000_u64.to_ne_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
    assert!(root.ends_with(&format!("0c000600{rate}0c000700{rate}")), "{root}");
}

#[test]
fn rates_are_in_the_limits_of_what_queues_share() {
    let rates = |kind, min_rate_bps, max_rate_bps| {
        let queue = vec![QueueSection { number: 7, min_rate_bps, max_rate_bps, ..QueueSection::default() }];
        let qos = QosSection { max_rate_bps: Some(8_000_000), queue, ..QosSection::new(kind) };
        let Class { min_rate, max_rate, .. } = discipline(&qos).queues[&7];
        (min_rate * 8, max_rate * 8)
    };
    assert_eq!(rates(QosKind::Htb, None, None), (12_000, 8_000_000));
    assert_eq!(rates(QosKind::Hfsc, None, None), (8, 8_000_000));
    assert_eq!(rates(QosKind::Htb, Some(9_000_000), Some(1)), (8_000_000, 8_000_000));
    assert_eq!(rates(QosKind::Htb, Some(800_000), Some(80_000)), (800_000, 800_000));
    let all = discipline(&QosSection::new(QosKind::Htb));
    assert_eq!(all.queues.keys().copied().collect::<Vec<_>>(), [0], "packets that choose no queue have one");
    let beyond = QueueSection { number: QUEUES_MAX, ..QueueSection::default() };
    let qos = QosSection { queue: vec![beyond], ..QosSection::new(QosKind::Htb) };
    assert_eq!(discipline(&qos).queues.len(), 1);
    assert!(discipline(&QosSection::new(QosKind::Netem)).queues.is_empty());
}

#[test]
fn what_the_kernel_lacks_is_said() {
    let error = |code| std::io::Error::from_raw_os_error(code);
    assert_eq!(
        reason(&error(libc::ENOENT), QosKind::FqCodel),
        "the kernel has no discipline `fq_codel`; load the module sch_fq_codel"
    );
    assert!(reason(&error(libc::EPERM), QosKind::Htb).contains("CAP_NET_ADMIN"));
    let missing = Installed::set_up("nowhere", &QosSection::new(QosKind::Htb), None).unwrap_err();
    assert_eq!(missing, "QoS type linux-htb is not set up: there is no such interface");
}
