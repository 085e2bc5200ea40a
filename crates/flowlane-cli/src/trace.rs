//! Packets to be classified, some thousands at a time.
//!
//! ```text
//! file ── unpacked ──► pieces ──► any thread: keys of a piece
//! ```
//!
//! What is read at once is bounded; what is read is parsed elsewhere, so that many threads can share a trace.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{Cursor, Read};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use flowlane::packet::{Captured, FlowKey, Headers, Malformed, Parser};
use flowlane::rule::classbench;
use flowlane_capture::{Batch, CaptureReader, SharedReader, unpack};
use flowlane_switch::packet::{Frame, decapsulate};

use crate::arguments::{TraceFormat, TraceInput};
use crate::failure::Failure;
use crate::input;

/// More bytes than these are not looked at ahead, however few packets are in them.
const AHEAD_BYTES_MAX: usize = 64 << 20;

/// About as many bytes of a text are a piece.
const TEXT_PIECE: usize = 1 << 17;

/// A trace that is being read, by one thread or several.
pub(crate) struct Trace<'a> {
    input: &'a TraceInput,
    packets: Packets,
    /// What has been looked at, and is still to be given.
    ahead: Mutex<VecDeque<Piece>>,
    /// Why nothing comes behind the last packet.
    damage: Mutex<Option<String>>,
    /// Bytes that may be made of the file where all packets are kept.
    kept_max: u64,
}

enum Packets {
    Capture(Box<SharedReader>),
    /// Headers, a line each, and the pieces that are still to be given: where they are, the numbers of their packets.
    Text(Arc<str>, Mutex<VecDeque<(Range<usize>, Range<u64>)>>),
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A thread that panics ends the program: others stop at the next piece.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Some packets of a trace.
#[derive(Default)]
pub(crate) struct Piece {
    batch: Batch,
    text: Option<(Arc<str>, Range<usize>)>,
    /// Their numbers in the trace, from 0.
    pub(crate) numbers: Range<u64>,
}

impl Piece {
    /// Whether it is text, of which all keys are made at once.
    pub(crate) fn is_text(&self) -> bool {
        self.text.is_some()
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        (self.numbers.end - self.numbers.start) as usize
    }
}

/// What kept packets from being read to their end.
#[derive(Clone, Copy, Default)]
pub(crate) struct Faults {
    /// Malformed, or refused by their tunnel's end.
    pub(crate) malformed: u64,
    /// The capture ends within their headers.
    pub(crate) cut: u64,
}

impl Faults {
    pub(crate) fn add(&mut self, other: Self) {
        self.malformed += other.malformed;
        self.cut += other.cut;
    }
}

impl<'a> Trace<'a> {
    /// Opens the trace. One of text is read and checked whole, so that nothing is done where a line is wrong.
    pub(crate) fn open(input: &'a TraceInput) -> Result<Self, Failure> {
        let failed = |e: &std::io::Error| Failure::file(&input.trace, "read", e);
        let file = File::open(&input.trace).map_err(|e| failed(&e))?;
        let packed_len = file.metadata().map_or(0, |data| data.len());
        let mut file = unpack(file).map_err(|e| failed(&e))?;
        let mut beginning = Vec::new();
        file.by_ref().take(4).read_to_end(&mut beginning).map_err(|e| failed(&e))?;
        let is_capture = match input.trace_format {
            TraceFormat::Auto => CaptureReader::<File>::is_capture(&beginning),
            TraceFormat::Classbench => false,
            TraceFormat::Pcap | TraceFormat::Pcapng => true,
        };
        let packets = if is_capture {
            let reader = match input.trace.is_file() {
                true => SharedReader::open(&input.trace, Arc::default()),
                // What has been read of it does not come again.
                false => SharedReader::of_stream(Box::new(Cursor::new(beginning).chain(file))),
            };
            Packets::Capture(Box::new(reader.map_err(|e| wrong(input, &e))?))
        } else {
            text(Cursor::new(beginning).chain(file), input)?
        };
        let kept_max = input::unpacked_max(packed_len);
        let trace = Self { input, packets, ahead: Mutex::default(), damage: Mutex::default(), kept_max };
        // What is damaged from the first packet on is no trace.
        trace.look(1);
        let is_empty = lock(&trace.ahead).is_empty();
        match trace.damage() {
            Some(damage) if is_empty => Err(wrong(input, &damage)),
            _ => Ok(trace),
        }
    }

    /// Puts the next packets into `piece`, in the place of what it had; says whether there are any.
    pub(crate) fn next(&self, piece: &mut Piece) -> bool {
        let ahead = lock(&self.ahead).pop_front();
        match ahead {
            Some(ahead) => *piece = ahead,
            None => self.read(piece),
        }
        piece.len() > 0
    }

    fn read(&self, piece: &mut Piece) {
        piece.numbers = 0..0;
        match &self.packets {
            Packets::Capture(reader) => match reader.next_batch(&mut piece.batch) {
                Ok(()) => {
                    let first = piece.batch.first();
                    piece.numbers = first..first + piece.batch.len() as u64;
                }
                Err(error) => *lock(&self.damage) = Some(error.to_string()),
            },
            Packets::Text(text, pieces) => {
                if let Some((range, numbers)) = lock(pieces).pop_front() {
                    piece.text = Some((Arc::clone(text), range));
                    piece.numbers = numbers;
                }
            }
        }
    }

    /// Looks at so many packets, or all that there are, as far as they take no more memory than is allowed; they are still to
    /// be given.
    fn look(&self, packets: usize) {
        let sum = |ahead: &VecDeque<Piece>, of: fn(&Piece) -> usize| ahead.iter().map(of).sum::<usize>();
        let mut ahead = lock(&self.ahead);
        while sum(&ahead, Piece::len) < packets && sum(&ahead, |piece| piece.batch.bytes()) < AHEAD_BYTES_MAX
        {
            let mut piece = Piece::default();
            self.read(&mut piece);
            if piece.len() == 0 {
                break;
            }
            ahead.push_back(piece);
        }
    }

    /// The keys of the first packets, about so many; they are still to be given.
    pub(crate) fn sample(&self, packets: usize) -> Vec<FlowKey> {
        self.look(packets);
        let (mut parsing, mut keys, mut sample) = (Parsing::new(self.input), Vec::new(), Vec::new());
        for piece in &*lock(&self.ahead) {
            let wanted = packets.saturating_sub(sample.len()).min(piece.len());
            parsing.keys(piece, 0..wanted, &mut keys);
            sample.append(&mut keys);
        }
        sample
    }

    /// All keys, and what was wrong with some.
    pub(crate) fn read_all(self) -> Result<(Vec<FlowKey>, Faults), Failure> {
        let (mut parsing, mut piece) = (Parsing::new(self.input), Piece::default());
        let (mut keys, mut all, mut faults, mut bytes) = (Vec::new(), Vec::new(), Faults::default(), 0);
        while self.next(&mut piece) {
            faults.add(parsing.keys(&piece, 0..piece.len(), &mut keys));
            all.append(&mut keys);
            bytes += piece.batch.packets().map(|packet| packet.bytes.len() as u64).sum::<u64>();
            if bytes > self.kept_max {
                let what = format!("more than {} bytes are not kept at once", self.kept_max);
                return Err(wrong(self.input, &what));
            }
        }
        match self.damage() {
            Some(damage) => Err(wrong(self.input, &damage)),
            None => Ok((all, faults)),
        }
    }

    /// How many packets there are, where that is known.
    pub(crate) fn count(&self) -> Option<u64> {
        match &self.packets {
            Packets::Capture(_) => None,
            Packets::Text(_, pieces) => {
                let last = lock(pieces).back().map(|(_, numbers)| numbers.end);
                Some(last.or(lock(&self.ahead).back().map(|piece| piece.numbers.end)).unwrap_or(0))
            }
        }
    }

    /// Why nothing comes behind the last packet, where the trace does not end there.
    pub(crate) fn damage(&self) -> Option<String> {
        lock(&self.damage).clone()
    }
}

fn wrong(input: &TraceInput, what: &dyn std::fmt::Display) -> Failure {
    Failure::input(format!("{}: {what}", input.trace.display()))
}

/// A trace of text, in pieces of whole lines.
fn text(file: impl Read, input: &TraceInput) -> Result<Packets, Failure> {
    let name = input.trace.display().to_string();
    let text = String::from_utf8(input::read_all(file, &input.trace)?)
        .map_err(|_| Failure::input(format!("{name} is neither a capture nor a text of headers")))?;
    let (mut pieces, mut at, mut number) = (VecDeque::new(), 0, 0);
    while at < text.len() {
        let about =
            text.as_bytes()[at..].get(TEXT_PIECE..).and_then(|rest| rest.iter().position(|b| *b == b'\n'));
        let end = about.map_or(text.len(), |more| at + TEXT_PIECE + more + 1);
        let Ok(headers) = classbench::check_trace(&text[at..end], &name) else {
            let errors = classbench::check_trace(&text, &name).expect_err("a line of it is wrong");
            return Err(Failure::lines(text, &errors));
        };
        if headers > 0 {
            pieces.push_back((at..end, number..number + headers as u64));
        }
        (at, number) = (end, number + headers as u64);
    }
    Ok(Packets::Text(text.into(), Mutex::new(pieces)))
}

/// How a thread makes keys of pieces.
pub(crate) struct Parsing<'a> {
    input: &'a TraceInput,
    parser: Parser,
    headers: Vec<Headers>,
    frame: Frame,
}

impl<'a> Parsing<'a> {
    pub(crate) fn new(input: &'a TraceInput) -> Self {
        Self { input, parser: Parser::new(), headers: Vec::new(), frame: Frame::default() }
    }

    /// The keys of some packets of a piece, in the place of what `keys` had.
    pub(crate) fn keys(&mut self, piece: &Piece, packets: Range<usize>, keys: &mut Vec<FlowKey>) -> Faults {
        if let Some((text, range)) = &piece.text {
            let read = classbench::read_trace(&text[range.clone()], "").expect("it was checked");
            *keys = read.into_iter().skip(packets.start).take(packets.len()).collect();
            return Faults::default();
        }
        keys.resize(packets.len(), FlowKey::zero());
        self.headers.resize(packets.len(), Headers::default());
        let frames = packets.clone().map(|i| {
            let packet = piece.batch.packet(i);
            Captured::new(packet.bytes, packet.len as usize).uncut()
        });
        self.parser.parse_all(frames, self.input.in_port, keys, &mut self.headers);
        let mut faults = Faults::default();
        if self.input.decapsulate {
            for ((i, key), headers) in packets.zip(keys).zip(&mut self.headers) {
                let packet = piece.batch.packet(i);
                self.frame.fill(packet.bytes);
                let missing = packet.len as usize - packet.bytes.len();
                let (parser, port) = (&self.parser, self.input.in_port);
                match decapsulate(parser, &mut self.frame, port, *headers, key, &[], missing) {
                    Ok(inner) => *headers = inner,
                    // It stays what it was outside, so that every packet has its row.
                    Err(_) => faults.malformed += 1,
                }
            }
        }
        for reason in self.headers.iter().filter_map(|headers| headers.malformed) {
            match reason {
                Malformed::NotCaptured => faults.cut += 1,
                _ => faults.malformed += 1,
            }
        }
        faults
    }
}
