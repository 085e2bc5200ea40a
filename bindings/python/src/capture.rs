//! Captures as record batches.

use std::fs::File;
use std::io::Read;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;

use arrow_array::builder::StringBuilder;
use arrow_array::{
    ArrayRef, BinaryArray, FixedSizeBinaryArray, RecordBatch, RecordBatchReader, StringArray,
    TimestampNanosecondArray, UInt8Array, UInt16Array, UInt32Array, UInt64Array,
};
use arrow_buffer::{Buffer, NullBuffer, OffsetBuffer};
use arrow_schema::{ArrowError, DataType, Field as ArrowField, Schema, SchemaRef, TimeUnit};
use flowlane::packet::fields::{Form, Prerequisite, word};
use flowlane::packet::{Captured, Field, FlowKey, Headers, Network, Parser};
use flowlane_capture::{Batch, CaptureReader, Packet, unpack};
use pyo3::exceptions::PyRuntimeWarning;
use pyo3::prelude::*;
use pyo3_arrow::PyRecordBatchReader;

use crate::columns::field;
use crate::error::error;

/// Packets that are parsed at a time: their keys stay in the nearest caches.
const CHUNK: usize = 256;

/// A batch ends where its frames have so many bytes: offsets of Arrow end at 2 GiB.
const FRAME_BYTES_MAX: usize = 256 << 20;

/// What is read where nobody says what: time, lengths, addresses, and what a flow analyst asks of IP.
const USUAL: [&str; 25] = [
    "time",
    "captured",
    "length",
    "in_port",
    "dl_src",
    "dl_dst",
    "dl_type",
    "vlan_tci",
    "dl_vlan",
    "nw_src",
    "nw_dst",
    "ipv6_src",
    "ipv6_dst",
    "nw_proto",
    "ip_dscp",
    "nw_ttl",
    "ip_frag",
    "tp_src",
    "tp_dst",
    "tcp_flags",
    "icmp_type",
    "icmp_code",
    "arp_op",
    "mpls_label",
    "fault",
];

/// A column of a capture.
#[derive(Clone, Copy)]
enum Kind {
    Time,
    /// Bytes that were captured.
    Len,
    /// Bytes that the frame had.
    Original,
    /// Why it was not parsed to its end.
    Fault,
    Frame,
    Field(Field),
}

impl Kind {
    fn of(name: &str) -> PyResult<Self> {
        Ok(match name {
            "time" => Self::Time,
            "captured" => Self::Len,
            "length" => Self::Original,
            "fault" => Self::Fault,
            "frame" => Self::Frame,
            name => Self::Field(
                field(name)
                    .map_err(|e| error(format!("{e}; others are time, captured, length, fault and frame")))?,
            ),
        })
    }

    fn data_type(self) -> DataType {
        match self {
            Self::Time => DataType::Timestamp(TimeUnit::Nanosecond, Some("UTC".into())),
            Self::Len | Self::Original => DataType::UInt32,
            Self::Fault => DataType::Utf8,
            Self::Frame => DataType::Binary,
            Self::Field(field) => match (field.info().form, field.info().width) {
                (Form::Mac, _) => DataType::FixedSizeBinary(6),
                (Form::Ipv6, _) => DataType::FixedSizeBinary(16),
                (_, ..=8) => DataType::UInt8,
                (_, ..=16) => DataType::UInt16,
                (_, ..=32) => DataType::UInt32,
                _ => DataType::UInt64,
            },
        }
    }

    fn is_nullable(self) -> bool {
        matches!(self, Self::Fault | Self::Field(_))
    }
}

/// What says whether a packet has a field.
#[derive(Clone, Copy)]
enum Presence {
    Always,
    Never,
    /// So many tags, or labels, at least.
    Tags(u8),
    Labels(u8),
    Network(Network),
    Ip,
    /// The parser has set this word of the key.
    Word(usize),
    /// The same, and the protocol is one of these.
    WordOf(usize, [u8; 2]),
    /// The same, and the field is not 0.
    Option(usize),
}

impl Presence {
    fn of(field: Field) -> Self {
        match field {
            Field::VlanTci => return Self::Tags(1),
            Field::VlanTci1 => return Self::Tags(2),
            Field::MplsLse1 => return Self::Labels(2),
            Field::MplsLse2 => return Self::Labels(3),
            Field::EthDst | Field::EthSrc => return Self::Word(word::ETH),
            Field::EthType => return Self::Word(word::VLAN_ETH_TYPE),
            Field::NdSll | Field::NdTll => return Self::Option(word::ND_TARGET),
            _ => {}
        }
        match field.info().prerequisite {
            Prerequisite::None => Self::Always,
            Prerequisite::Vlan => Self::Tags(1),
            Prerequisite::Mpls => Self::Labels(1),
            Prerequisite::Arp => Self::Network(Network::Arp),
            Prerequisite::Ip => Self::Ip,
            Prerequisite::Ipv4 => Self::Network(Network::Ipv4),
            Prerequisite::Ipv6 => Self::Network(Network::Ipv6),
            Prerequisite::Ports => Self::Word(word::PORTS),
            Prerequisite::Tcp => Self::WordOf(word::FLAGS, [6, 6]),
            Prerequisite::Icmp => Self::WordOf(word::FLAGS, [1, 58]),
            Prerequisite::NeighbourDiscovery => Self::Word(word::ND_TARGET),
            // Nothing is taken out of a tunnel here.
            Prerequisite::Tunnel => Self::Never,
        }
    }

    #[inline(always)]
    fn holds(self, key: &FlowKey, headers: &Headers, value: impl FnOnce() -> u128) -> bool {
        let has = |w: usize| key.present() >> w & 1 == 1;
        match self {
            Self::Always => true,
            Self::Never => false,
            Self::Tags(tags) => headers.vlan_tags >= tags,
            Self::Labels(labels) => headers.mpls_labels >= labels,
            Self::Network(network) => headers.network == network,
            Self::Ip => matches!(headers.network, Network::Ipv4 | Network::Ipv6),
            Self::Word(w) => has(w),
            Self::WordOf(w, protocols) => {
                has(w) && protocols.contains(&((key.word(word::NW_PROTO) >> 24) as u8))
            }
            Self::Option(w) => has(w) && value() != 0,
        }
    }
}

/// Values of a column so far.
enum Values {
    U8(Vec<u8>),
    U16(Vec<u16>),
    U32(Vec<u32>),
    U64(Vec<u64>),
    I64(Vec<i64>),
    Bytes(Vec<u8>, usize),
    Text(StringBuilder),
    /// With where each ends.
    Frames(Vec<u8>, Vec<i32>),
}

struct Column {
    kind: Kind,
    values: Values,
    /// Of fields.
    valid: Vec<bool>,
}

impl Column {
    fn new(kind: Kind) -> Self {
        let values = match kind.data_type() {
            DataType::UInt8 => Values::U8(Vec::new()),
            DataType::UInt16 => Values::U16(Vec::new()),
            DataType::UInt32 => Values::U32(Vec::new()),
            DataType::UInt64 => Values::U64(Vec::new()),
            DataType::Timestamp(..) => Values::I64(Vec::new()),
            DataType::FixedSizeBinary(each) => Values::Bytes(Vec::new(), each as usize),
            DataType::Binary => Values::Frames(Vec::new(), vec![0]),
            _ => Values::Text(StringBuilder::new()),
        };
        Self { kind, values, valid: Vec::new() }
    }

    /// Adds the values of some packets.
    fn add(&mut self, packets: &[Packet<'_>], keys: &[FlowKey], headers: &[Headers]) {
        let parsed = || keys.iter().zip(headers);
        match (self.kind, &mut self.values) {
            (Kind::Time, Values::I64(values)) => {
                values.extend(packets.iter().map(|packet| packet.time_ns.min(i64::MAX as u64) as i64));
            }
            (Kind::Len, Values::U32(values)) => values.extend(packets.iter().map(|p| p.bytes.len() as u32)),
            (Kind::Original, Values::U32(values)) => values.extend(packets.iter().map(|packet| packet.len)),
            (Kind::Fault, Values::Text(values)) => {
                headers.iter().for_each(|h| values.append_option(h.malformed.map(|reason| reason.name())));
            }
            (Kind::Frame, Values::Frames(bytes, ends)) => {
                for packet in packets {
                    bytes.extend(packet.bytes);
                    ends.push(bytes.len() as i32);
                }
            }
            (Kind::Field(field), values) => {
                let presence = Presence::of(field);
                let holds =
                    |(key, headers): (&FlowKey, &Headers)| presence.holds(key, headers, || key.get(field));
                let from = self.valid.len();
                self.valid.extend(parsed().map(holds));
                let valid = &self.valid[from..];
                // A field in one word is a shift; what is null is 0.
                let mut pieces = field.info().pieces();
                let (w, shift, width) = pieces.next().expect("a field has a width");
                let ones = u32::MAX >> (32 - width);
                let own = |key: &FlowKey, valid: bool| if valid { key.word(w) >> shift & ones } else { 0 };
                let narrow = keys.iter().zip(valid).map(|(key, valid)| own(key, *valid));
                match values {
                    Values::U8(values) => values.extend(narrow.map(|value| value as u8)),
                    Values::U16(values) => values.extend(narrow.map(|value| value as u16)),
                    Values::U32(values) => values.extend(narrow),
                    Values::U64(values) => {
                        let wide = keys
                            .iter()
                            .zip(valid)
                            .map(|(key, valid)| if *valid { key.get(field) } else { 0 });
                        values.extend(wide.map(|value| value as u64));
                    }
                    // Most packets are of one kind.
                    Values::Bytes(values, each) if !valid.contains(&true) => {
                        values.resize(values.len() + keys.len() * *each, 0);
                    }
                    Values::Bytes(values, each) => {
                        for (key, valid) in keys.iter().zip(valid) {
                            let value = if *valid { key.get(field) } else { 0 };
                            values.extend(&value.to_be_bytes()[16 - *each..]);
                        }
                    }
                    _ => unreachable!("fields are numbers or bytes"),
                }
            }
            _ => unreachable!("a column has the values of its kind"),
        }
    }

    /// The array; from then on the column is empty.
    fn finish(&mut self) -> ArrayRef {
        let done = std::mem::replace(self, Self::new(self.kind));
        let nulls = Some(NullBuffer::from(done.valid)).filter(|nulls| nulls.null_count() > 0);
        match done.values {
            Values::U8(values) => Arc::new(UInt8Array::new(values.into(), nulls)),
            Values::U16(values) => Arc::new(UInt16Array::new(values.into(), nulls)),
            Values::U32(values) => Arc::new(UInt32Array::new(values.into(), nulls)),
            Values::U64(values) => Arc::new(UInt64Array::new(values.into(), nulls)),
            Values::I64(values) => {
                Arc::new(TimestampNanosecondArray::new(values.into(), None).with_timezone("UTC"))
            }
            Values::Bytes(bytes, each) => {
                Arc::new(FixedSizeBinaryArray::new(each as i32, Buffer::from_vec(bytes), nulls))
            }
            Values::Text(mut values) => Arc::new(StringArray::from(values.finish())),
            Values::Frames(bytes, ends) => {
                Arc::new(BinaryArray::new(OffsetBuffer::new(ends.into()), Buffer::from_vec(bytes), None))
            }
        }
    }
}

/// A capture that is being read.
struct Reading {
    name: String,
    reader: CaptureReader<Box<dyn Read + Send>>,
    parser: Parser,
    in_port: u32,
    schema: SchemaRef,
    columns: Vec<Column>,
    batch: Batch,
    rows: usize,
    done: bool,
    /// What is to be said once all packets before it have been given.
    damage: Option<String>,
}

impl Reading {
    /// Bytes of frames in the batch that is being made.
    fn frame_bytes(&self) -> usize {
        let bytes =
            |column: &Column| if let Values::Frames(bytes, _) = &column.values { bytes.len() } else { 0 };
        self.columns.iter().map(bytes).sum()
    }

    /// Adds the next packets that are read at once; says how many.
    fn add(&mut self) -> Result<usize, flowlane_capture::CaptureError> {
        self.reader.next_batch(&mut self.batch)?;
        let mut keys = vec![FlowKey::zero(); CHUNK];
        let mut headers = vec![Headers::default(); CHUNK];
        for first in (0..self.batch.len()).step_by(CHUNK) {
            let rows = first..(first + CHUNK).min(self.batch.len());
            let packets: Vec<Packet<'_>> = rows.map(|i| self.batch.packet(i)).collect();
            let frames = packets.iter().map(|packet| Captured::new(packet.bytes, packet.len as usize));
            self.parser.parse_all(frames, self.in_port, &mut keys, &mut headers);
            let (keys, headers) = (&keys[..packets.len()], &headers[..packets.len()]);
            self.columns.iter_mut().for_each(|column| column.add(&packets, keys, headers));
        }
        Ok(self.batch.len())
    }

    /// Says what is wrong behind the last packet.
    fn warn(&self, damage: &str) -> Result<(), ArrowError> {
        let text = std::ffi::CString::new(format!("{}: {damage}", self.name).replace('\0', "?"));
        let text = text.expect("there is no NUL in it");
        Python::attach(|py| PyErr::warn(py, &py.get_type::<PyRuntimeWarning>(), &text, 2))
            .map_err(|e| ArrowError::ExternalError(e.to_string().into()))
    }
}

impl Iterator for Reading {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut rows = 0;
        while rows < self.rows && self.frame_bytes() < FRAME_BYTES_MAX && !self.done {
            // What panics must not unwind into whoever reads the stream.
            match catch_unwind(AssertUnwindSafe(|| self.add())) {
                Ok(Ok(0)) => self.done = true,
                Ok(Ok(more)) => rows += more,
                Ok(Err(error)) => (self.done, self.damage) = (true, Some(error.to_string())),
                Err(_) => {
                    self.done = true;
                    return Some(Err(ArrowError::ExternalError(
                        "the reader has a fault: please report it".into(),
                    )));
                }
            }
        }
        if rows == 0 {
            let damage = self.damage.take()?;
            return self.warn(&damage).err().map(Err);
        }
        let arrays = self.columns.iter_mut().map(Column::finish).collect();
        Some(RecordBatch::try_new(self.schema.clone(), arrays))
    }
}

impl RecordBatchReader for Reading {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }
}

/// The packets of a capture as a stream of record batches of about so many rows.
///
/// # Errors
/// Where the file cannot be read or is no capture, or there is no such column.
#[pyfunction]
pub fn capture_batches(
    path: PathBuf,
    columns: Option<Vec<String>>,
    batch_size: usize,
    in_port: u32,
) -> PyResult<PyRecordBatchReader> {
    let name = path.display().to_string();
    let missing = |e: std::io::Error| match e.kind() {
        std::io::ErrorKind::NotFound => {
            pyo3::exceptions::PyFileNotFoundError::new_err(format!("{name}: {e}"))
        }
        _ => pyo3::exceptions::PyOSError::new_err(format!("{name}: {e}")),
    };
    let file = File::open(&path).and_then(unpack).map_err(missing)?;
    let reader = CaptureReader::new(file).map_err(|e| error(format!("{name}: {e}")))?;
    let names = columns.unwrap_or_else(|| USUAL.map(str::to_owned).to_vec());
    if names.is_empty() {
        return Err(error("no columns are named; leave them out for the usual ones"));
    }
    let kinds = names.iter().map(|name| Kind::of(name)).collect::<PyResult<Vec<_>>>()?;
    let described = names.iter().zip(&kinds);
    let described = described.map(|(name, kind)| ArrowField::new(name, kind.data_type(), kind.is_nullable()));
    Ok(PyRecordBatchReader::new(Box::new(Reading {
        name,
        reader,
        parser: Parser::new(),
        in_port,
        schema: Arc::new(Schema::new(described.collect::<Vec<_>>())),
        columns: kinds.into_iter().map(Column::new).collect(),
        batch: Batch::default(),
        rows: batch_size.max(1),
        done: false,
        damage: None,
    })))
}
