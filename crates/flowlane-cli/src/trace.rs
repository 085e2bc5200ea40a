//! Packets to classify, in chunks of some thousands.
//!
//! ```text
//! file ── decompress ──► chunks ──► any thread: keys of a chunk
//! ```
//!
//! Reading is bounded in memory; threads that share a trace parse their chunks in parallel.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{Cursor, Read};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use flowlane::packet::{Captured, FlowKey, Headers, Malformed, Parser};
use flowlane::rule::classbench;
use flowlane::tunnel::Policy;
use flowlane_capture::{
    Batch, CaptureReader, SharedReader, TextError, decompress, read_stream, text_of, unpacked_max,
};
use flowlane_switch::packet::{Frame, Termination, decapsulate};

use crate::arguments::{TraceFormat, TraceInput};
use crate::failure::Failure;
use crate::kind::Kind;

/// Limit of bytes buffered ahead, whatever the number of packets.
const AHEAD_BYTES_MAX: usize = 64 << 20;

/// Approximate size of a text chunk in bytes.
const TEXT_CHUNK_BYTES: usize = 1 << 17;

/// A trace that one or several threads read.
pub(crate) struct Trace<'a> {
    input: &'a TraceInput,
    packets: Packets,
    /// Chunks that were read ahead, for the sample.
    ahead: Mutex<VecDeque<Chunk>>,
    /// Reason why not all packets could be read.
    damage: Mutex<Option<String>>,
    /// Memory limit if all packets are kept.
    kept_max: u64,
}

enum Packets {
    Capture(Box<SharedReader>),
    /// The text, and the remaining chunks: byte range and packet numbers.
    Text(Arc<str>, Mutex<VecDeque<(Range<usize>, Range<u64>)>>),
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic ends the program; the other threads stop at their next chunk.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Consecutive packets of a trace.
#[derive(Default)]
pub(crate) struct Chunk {
    batch: Batch,
    text: Option<(Arc<str>, Range<usize>)>,
    /// Packet numbers in the trace, from 0.
    pub(crate) numbers: Range<u64>,
}

impl Chunk {
    /// Returns whether the chunk is text, whose keys are parsed all at once.
    pub(crate) fn is_text(&self) -> bool {
        self.text.is_some()
    }

    /// Returns the number of packets.
    pub(crate) fn len(&self) -> usize {
        (self.numbers.end - self.numbers.start) as usize
    }
}

/// Counts of packets that could not be parsed completely.
#[derive(Clone, Copy, Default)]
pub(crate) struct ParseFaults {
    /// Malformed, or rejected by tunnel decapsulation.
    pub(crate) malformed: u64,
    /// Truncated within their headers by the capture.
    pub(crate) cut: u64,
}

impl ParseFaults {
    pub(crate) fn add(&mut self, other: Self) {
        self.malformed += other.malformed;
        self.cut += other.cut;
    }
}

impl<'a> Trace<'a> {
    /// Opens a trace. A text trace is read and checked completely first, so that an error precedes any output.
    pub(crate) fn open(input: &'a TraceInput) -> Result<Self, Failure> {
        let failed = |e: &std::io::Error| Failure::file(&input.trace, "read", e);
        let file = File::open(&input.trace).map_err(|e| failed(&e))?;
        let packed_len = file.metadata().map_or(0, |data| data.len());
        let mut file = decompress(file).map_err(|e| failed(&e))?;
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
                // Bytes already read from a stream are prepended.
                false => SharedReader::of_stream(Box::new(Cursor::new(beginning).chain(file))),
            };
            Packets::Capture(Box::new(reader.map_err(|e| wrong(input, &e))?))
        } else {
            text(Cursor::new(beginning).chain(file), input)?
        };
        let kept_max = unpacked_max(packed_len);
        let trace = Self { input, packets, ahead: Mutex::default(), damage: Mutex::default(), kept_max };
        // A trace that is damaged before its first packet is an error.
        trace.look(1);
        let is_empty = lock(&trace.ahead).is_empty();
        match trace.damage() {
            Some(damage) if is_empty => Err(wrong(input, &damage)),
            _ => Ok(trace),
        }
    }

    /// Replaces `chunk` with the next packets; returns whether there are any.
    pub(crate) fn next(&self, chunk: &mut Chunk) -> bool {
        let ahead = lock(&self.ahead).pop_front();
        match ahead {
            Some(ahead) => *chunk = ahead,
            None => self.read(chunk),
        }
        chunk.len() > 0
    }

    fn read(&self, chunk: &mut Chunk) {
        chunk.numbers = 0..0;
        match &self.packets {
            Packets::Capture(reader) => match reader.next_batch(&mut chunk.batch) {
                Ok(()) => {
                    let first = chunk.batch.first();
                    chunk.numbers = first..first + chunk.batch.len() as u64;
                }
                Err(error) => *lock(&self.damage) = Some(error.to_string()),
            },
            Packets::Text(text, chunks) => {
                if let Some((range, numbers)) = lock(chunks).pop_front() {
                    chunk.text = Some((Arc::clone(text), range));
                    chunk.numbers = numbers;
                }
            }
        }
    }

    /// Reads ahead at least `packets` packets, within the memory limit; `next` returns them later.
    fn look(&self, packets: usize) {
        let sum = |ahead: &VecDeque<Chunk>, of: fn(&Chunk) -> usize| ahead.iter().map(of).sum::<usize>();
        let mut ahead = lock(&self.ahead);
        while sum(&ahead, Chunk::len) < packets && sum(&ahead, |chunk| chunk.batch.bytes()) < AHEAD_BYTES_MAX
        {
            let mut chunk = Chunk::default();
            self.read(&mut chunk);
            if chunk.len() == 0 {
                break;
            }
            ahead.push_back(chunk);
        }
    }

    /// Returns the keys of up to `packets` first packets, which `next` returns as well.
    pub(crate) fn sample(&self, packets: usize) -> Vec<FlowKey> {
        self.look(packets);
        let (mut parser, mut keys, mut sample) = (ChunkParser::new(self.input), Vec::new(), Vec::new());
        for chunk in &*lock(&self.ahead) {
            let wanted = packets.saturating_sub(sample.len()).min(chunk.len());
            parser.keys(chunk, 0..wanted, &mut keys);
            sample.append(&mut keys);
        }
        sample
    }

    /// Returns all keys, and the counts of incomplete ones.
    pub(crate) fn read_all(&self) -> Result<(Vec<FlowKey>, ParseFaults), Failure> {
        let (mut parser, mut chunk) = (ChunkParser::new(self.input), Chunk::default());
        let (mut keys, mut all, mut faults, mut bytes) = (Vec::new(), Vec::new(), ParseFaults::default(), 0);
        while self.next(&mut chunk) {
            faults.add(parser.keys(&chunk, 0..chunk.len(), &mut keys));
            all.append(&mut keys);
            bytes += chunk.batch.packets().map(|packet| packet.bytes.len() as u64).sum::<u64>();
            if bytes > self.kept_max {
                let what = format!("exceeds {} bytes, the limit for keeping all packets", self.kept_max);
                return Err(wrong(self.input, &what));
            }
        }
        Ok((all, faults))
    }

    /// Returns the number of packets, if known.
    pub(crate) fn count(&self) -> Option<u64> {
        match &self.packets {
            Packets::Capture(_) => None,
            Packets::Text(_, chunks) => {
                let last = lock(chunks).back().map(|(_, numbers)| numbers.end);
                Some(last.or(lock(&self.ahead).back().map(|chunk| chunk.numbers.end)).unwrap_or(0))
            }
        }
    }

    /// Returns the failure of a command that has processed the readable packets of a damaged trace.
    pub(crate) fn failure(&self) -> Option<Failure> {
        let damage = format!("{}: {}", self.input.trace.display(), self.damage()?);
        Some(Failure::input_help(damage, "all other packets have been processed"))
    }

    /// Returns the reason why not all packets of the trace could be read, if any.
    pub(crate) fn damage(&self) -> Option<String> {
        lock(&self.damage).clone()
    }
}

fn wrong(input: &TraceInput, what: &dyn std::fmt::Display) -> Failure {
    Failure::input(format!("{}: {what}", input.trace.display()))
}

/// Splits a text trace into chunks of whole lines.
fn text(file: impl Read, input: &TraceInput) -> Result<Packets, Failure> {
    let name = input.trace.display().to_string();
    let text = text_of(read_stream(file, &name)?, &name).map_err(|error| TextError {
        problem: format!("is neither a capture nor a header trace: it {}", error.problem),
        ..error
    })?;
    let (mut chunks, mut at, mut number) = (VecDeque::new(), 0, 0);
    while at < text.len() {
        let about = text.as_bytes()[at..]
            .get(TEXT_CHUNK_BYTES..)
            .and_then(|rest| rest.iter().position(|b| *b == b'\n'));
        let end = about.map_or(text.len(), |more| at + TEXT_CHUNK_BYTES + more + 1);
        let Ok(headers) = classbench::check_trace(&text[at..end], &name) else {
            let errors = classbench::check_trace(&text, &name).expect_err("a line of it is wrong");
            return Err(Failure::lines_of(&[Kind::Trace], text, &errors));
        };
        if headers > 0 {
            chunks.push_back((at..end, number..number + headers as u64));
        }
        (at, number) = (end, number + headers as u64);
    }
    Ok(Packets::Text(text.into(), Mutex::new(chunks)))
}

/// Per-thread parser of chunks into keys.
pub(crate) struct ChunkParser<'a> {
    input: &'a TraceInput,
    parser: Parser,
    headers: Vec<Headers>,
    frame: Frame,
}

impl<'a> ChunkParser<'a> {
    pub(crate) fn new(input: &'a TraceInput) -> Self {
        Self { input, parser: Parser::new(), headers: Vec::new(), frame: Frame::default() }
    }

    /// Replaces `keys` with the keys of some packets of a chunk.
    pub(crate) fn keys(
        &mut self,
        chunk: &Chunk,
        packets: Range<usize>,
        keys: &mut Vec<FlowKey>,
    ) -> ParseFaults {
        if let Some((text, range)) = &chunk.text {
            let read = classbench::read_trace(&text[range.clone()], "").expect("it was checked");
            *keys = read.into_iter().skip(packets.start).take(packets.len()).collect();
            return ParseFaults::default();
        }
        keys.resize(packets.len(), FlowKey::zero());
        self.headers.resize(packets.len(), Headers::default());
        let frames = packets.clone().map(|i| {
            let packet = chunk.batch.packet(i);
            Captured::new(packet.bytes, packet.len as usize).uncut().with_pppoe()
        });
        self.parser.parse_all(frames, self.input.in_port, keys, &mut self.headers);
        let mut faults = ParseFaults::default();
        let policy = Policy::default();
        if self.input.decapsulate {
            for ((i, key), headers) in packets.zip(keys).zip(&mut self.headers) {
                let packet = chunk.batch.packet(i);
                self.frame.fill(packet.bytes);
                let missing = packet.len as usize - packet.bytes.len();
                let (parser, port) = (&self.parser, self.input.in_port);
                match decapsulate(
                    parser,
                    &mut self.frame,
                    port,
                    *headers,
                    key,
                    Termination { kind: None, policy: &policy, takes_ip: true },
                    missing,
                ) {
                    Ok(inner) => *headers = inner,
                    // Classified by its outer headers, so that every packet has a verdict.
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
