//! BFD: frames of any bytes, and sessions that get them.

use crate::state::bfd::{Filter, Session, Settings, State, is_control, read};

/// Frames for a session of BFD: the input is one of them, and holds others, each behind its length and a pause. A refused frame
/// changes nothing, packets are not sent more often than every 10 ms, and a session can come up again.
pub fn bfd(bytes: &[u8]) {
    read_alone(bytes);
    let settings = Settings { min_tx_ms: 50, min_rx_ms: 100, ..Settings::default() };
    let (mut session, mut now_ms, mut sent_ms) = (Session::new(settings.clone(), 1, 0), 0, None);
    let mut rest = bytes;
    while let [len, pause, behind @ ..] = rest {
        let (frame, next) = behind.split_at(behind.len().min(usize::from(*len)));
        rest = next;
        now_ms += u64::from(*pause);
        read_alone(frame);
        let before = session.status(now_ms);
        if session.receive(frame, true, now_ms).is_err() {
            assert_eq!(session.status(now_ms), before);
        }
        assert!(session.state() != State::AdminDown);
        if let Some(sent) = session.run(now_ms) {
            assert!(sent_ms.is_none_or(|before| now_ms >= before + 10), "{sent_ms:?} {now_ms}");
            assert!(is_control(&sent, &Filter::default()));
            read(&sent, true).expect("own packets are sound");
            sent_ms = Some(now_ms);
        }
        assert!(session.run(now_ms).is_none() && session.deadline_ms() > now_ms);
        assert!(!session.describe(now_ms).is_empty());
    }
    come_up(session, settings, now_ms);
}

/// Any bytes are read, or refused; control packets in them are those that the datapath takes.
fn read_alone(frame: &[u8]) {
    let found = read(frame, true);
    if found.is_ok() {
        assert!(is_control(frame, &Filter::default()) && read(frame, false) == found);
    }
}

/// A sound other end brings the session up, once that has forgotten the former one.
fn come_up(mut session: Session, settings: Settings, mut now_ms: u64) {
    let mut other = Session::new(settings, 2, now_ms);
    let mut frames: Vec<Vec<u8>> = Vec::new();
    // A detection time may be 255 × 72 minutes.
    now_ms += 255 * u64::from(u32::MAX);
    for _ in 0..400 {
        for frame in frames.drain(..) {
            _ = session.receive(&frame, true, now_ms);
        }
        if let Some(frame) = session.run(now_ms) {
            _ = other.receive(&frame, true, now_ms);
        }
        frames.extend(other.run(now_ms));
        now_ms += 10;
    }
    assert_eq!([session.state(), other.state()], [State::Up; 2]);
}
