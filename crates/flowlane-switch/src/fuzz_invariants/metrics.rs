//! The metrics endpoint, with any bytes.

use std::sync::Arc;

use super::CONTROLLED;
use crate::mgmt::metrics::answers;
use crate::mgmt::rpc::ControlServer;
use crate::mgmt::setup::{Reload, Setup};

/// Bytes to the metrics endpoint: each request has one whole response of HTTP.
pub fn metrics(bytes: &[u8]) {
    let setup = Setup::parse(CONTROLLED).expect("it is correct");
    let reload = Reload::of(&setup);
    let (_switch, control) = setup.open_controlled(1).expect("its ports are not of the system");
    let served = Arc::new(ControlServer::new(control, reload, Arc::default()));
    let all = answers(served, bytes);
    let requests = bytes.windows(4).filter(|four| *four == b"\r\n\r\n").count();
    assert!(all.len() <= requests + 1, "{} responses to {requests} requests", all.len());
    for (response, is_head) in all {
        let text = std::str::from_utf8(&response).expect("it is text");
        let (head, body) = text.split_once("\r\n\r\n").expect("it has a head");
        let mut lines = head.split("\r\n");
        let status = lines.next().and_then(|line| line.strip_prefix("HTTP/1.1 ")).expect("it has a status");
        assert!(status[..3].parse::<u16>().is_ok_and(|status| (200..600).contains(&status)), "{head}");
        let headers: Vec<(&str, &str)> =
            lines.map(|line| line.split_once(": ").unwrap_or_else(|| panic!("{line}"))).collect();
        let lengths = headers.iter().filter(|(name, _)| *name == "Content-Length");
        let lengths: Vec<usize> = lengths.map(|(_, value)| value.parse().expect("it is a number")).collect();
        assert_eq!(lengths.len(), 1, "{head}");
        assert_eq!(body.len(), if is_head { 0 } else { lengths[0] }, "{text}");
        assert!(!head.contains(['\0', '\t']) && !head.replace("\r\n", "").contains(['\r', '\n']), "{head:?}");
    }
}
