//! Record batches of captured packets.

use std::sync::Arc;

use arrow_array::{RecordBatch, RecordBatchOptions};
use arrow_schema::{Schema, SchemaRef};
use flowlane::packet::{Captured, FlowKey, Headers, Malformed, Parser, tunnel};
use flowlane_capture::{Batch, Packet};

use crate::Column;
use crate::column::{ColumnBuilder, Parsed};

/// Packets parsed at a time, few enough for their keys to stay in L1 or L2.
const CHUNK: usize = 256;

/// Default columns: time, lengths, addresses, and the IP and transport fields of flow analysis.
pub const DEFAULT_COLUMNS: [&str; 25] = [
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

/// Returns the schema of these columns.
pub fn schema(columns: &[Column]) -> SchemaRef {
    Arc::new(Schema::new(columns.iter().map(|column| column.schema_field()).collect::<Vec<_>>()))
}

/// Builds record batches of packets.
///
/// ```
/// use flowlane_arrow::{Column, Rows};
/// use flowlane_capture::{Batch, CaptureReader, CaptureWriter, FileFormat};
///
/// let mut writer = CaptureWriter::new(Vec::new(), FileFormat::Pcap)?;
/// writer.write(1_700_000_000_000_000_000, &[0xff; 60])?;
/// let file = writer.finish()?;
/// let mut reader = CaptureReader::new(&file[..])?;
///
/// let mut rows = Rows::new(&[Column::by_name("time")?, Column::by_name("dl_dst")?], 0);
/// let mut batch = Batch::default();
/// reader.next_batch(&mut batch)?;
/// rows.add(&batch, |packet| packet.len < 100);
/// assert_eq!(rows.finish().num_rows(), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Rows {
    schema: SchemaRef,
    columns: Vec<ColumnBuilder>,
    is_parsed: bool,
    decapsulated: Option<Vec<u8>>,
    parser: Parser,
    in_port: u32,
    len: usize,
    numbers: Vec<u64>,
    keys: Vec<FlowKey>,
    headers: Vec<Headers>,
}

impl Rows {
    /// Creates a builder of these columns for packets received on port `in_port`.
    pub fn new(columns: &[Column], in_port: u32) -> Self {
        Self {
            schema: schema(columns),
            columns: columns.iter().map(|column| ColumnBuilder::new(*column)).collect(),
            is_parsed: columns.iter().any(|column| column.is_parsed()),
            decapsulated: None,
            parser: Parser::new(),
            in_port,
            len: 0,
            numbers: Vec::new(),
            keys: Vec::new(),
            headers: Vec::new(),
        }
    }

    /// Replaces tunnel packets by their inner packets.
    #[must_use]
    pub fn decapsulated(mut self) -> Self {
        self.decapsulated = Some(Vec::new());
        self
    }

    /// Returns the schema of the record batches.
    pub fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    /// Returns the number of packets added.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether no packet has been added.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the bytes of frames added: Arrow's 32-bit offsets end at 2 GiB.
    pub fn frame_bytes(&self) -> usize {
        self.columns.iter().map(ColumnBuilder::frame_bytes).sum()
    }

    /// Adds the packets of a batch that satisfy `wanted`.
    pub fn add(&mut self, batch: &Batch, wanted: impl Fn(&Packet<'_>) -> bool) {
        let mut packets: Vec<Packet<'_>> = Vec::with_capacity(CHUNK);
        for (number, packet) in (batch.first()..).zip(batch.packets()) {
            if !wanted(&packet) {
                continue;
            }
            packets.push(packet);
            self.numbers.push(number);
            if packets.len() == CHUNK {
                self.add_chunk(&packets);
                packets.clear();
            }
        }
        self.add_chunk(&packets);
    }

    fn add_chunk(&mut self, packets: &[Packet<'_>]) {
        self.len += packets.len();
        if self.is_parsed {
            self.keys.resize(packets.len(), FlowKey::zero());
            self.headers.resize(packets.len(), Headers::default());
            let frames = packets
                .iter()
                .map(|packet| Captured::new(packet.bytes, packet.len as usize).uncut().with_pppoe());
            self.parser.parse_all(frames, self.in_port, &mut self.keys, &mut self.headers);
            if let Some(inner) = &mut self.decapsulated {
                for ((packet, key), headers) in packets.iter().zip(&mut self.keys).zip(&mut self.headers) {
                    decapsulate(&self.parser, packet, self.in_port, key, headers, inner);
                }
            }
        }
        let parsed = Parsed { numbers: &self.numbers, packets, keys: &self.keys, headers: &self.headers };
        self.columns.iter_mut().for_each(|column| column.add(&parsed));
        self.numbers.clear();
    }

    /// Returns the added packets as a record batch, and empties the builder.
    pub fn finish(&mut self) -> RecordBatch {
        let options = RecordBatchOptions::new().with_row_count(Some(std::mem::take(&mut self.len)));
        let arrays = self.columns.iter_mut().map(ColumnBuilder::finish).collect();
        RecordBatch::try_new_with_options(self.schema(), arrays, &options)
            .expect("columns are of their types and as long as each other")
    }
}

/// Replaces the outer key and headers of a tunnel packet by the inner ones; other frames are unchanged. An error in the
/// tunnel header is recorded as the packet's fault.
fn decapsulate(
    parser: &Parser,
    packet: &Packet<'_>,
    in_port: u32,
    key: &mut FlowKey,
    headers: &mut Headers,
    made: &mut Vec<u8>,
) {
    let tunnel = match tunnel::read(packet.bytes, headers) {
        Ok(Some(tunnel)) if headers.malformed.is_none() => tunnel,
        Ok(_) => return,
        Err(reason) => {
            let is_cut = packet.is_truncated() && reason == Malformed::TunnelTruncated;
            headers.malformed.get_or_insert(if is_cut { Malformed::NotCaptured } else { reason });
            return;
        }
    };
    let at = tunnel.inner_at.min(packet.bytes.len());
    let (inner, len) = (&packet.bytes[at..], packet.len as usize - at);
    let frame = match tunnel.inner {
        tunnel::Inner::Ethernet => Captured::new(inner, len),
        tunnel::Inner::Ip(ether_type) => {
            made.clear();
            made.extend([0; 12]);
            made.extend(ether_type.to_be_bytes());
            made.extend(inner);
            Captured::new(made, len + 14)
        }
    };
    let (outer, outer_headers) = (std::mem::replace(key, FlowKey::zero()), *headers);
    *headers = parser.parse_captured(frame, in_port, key);
    tunnel.fill(&outer, &outer_headers, key);
}
