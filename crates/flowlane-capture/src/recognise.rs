//! Files that are recognised where another kind is expected, and how to convert them.

use super::CaptureReader;

/// The kind of a file, and how to convert it to a kind that is read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Recognised {
    /// The kind, as in "is …".
    pub what: &'static str,
    /// How to convert it.
    pub remedy: &'static str,
}

impl std::fmt::Display for Recognised {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}; {}", self.what, self.remedy)
    }
}

/// Compressed files that are not decompressed, and archives.
const PACKED: [(&[u8], Recognised); 7] = [
    (b"BZh", Recognised { what: "compressed by bzip2", remedy: "decompress it first: bunzip2 FILE" }),
    (b"\xfd7zXZ\0", Recognised { what: "compressed by xz", remedy: "decompress it first: unxz FILE" }),
    (
        b"\x04\x22\x4d\x18",
        Recognised { what: "compressed by lz4", remedy: "decompress it first: unlz4 FILE" },
    ),
    (b"LZIP\x01", Recognised { what: "compressed by lzip", remedy: "decompress it first: lzip -d FILE" }),
    (b"\x1f\x9d", Recognised { what: "compressed by compress", remedy: "decompress it first: gunzip FILE" }),
    (b"PK\x03\x04", Recognised { what: "a zip archive", remedy: "unpack it first: unzip FILE" }),
    (b"7z\xbc\xaf\x27\x1c", Recognised { what: "a 7z archive", remedy: "unpack it first: 7z x FILE" }),
];

/// The first bytes of a file by which every compression is recognised.
pub(super) const PACKED_BYTES: usize = 6;

const _: () = {
    let mut n = 0;
    while n < PACKED.len() {
        assert!(PACKED[n].0.len() <= PACKED_BYTES);
        n += 1;
    }
};

const UTF_16: Recognised =
    Recognised { what: "text in UTF-16", remedy: "convert it: iconv -f UTF-16 -t UTF-8 FILE" };

const CAPTURE: Recognised = Recognised { what: "a capture of packets", remedy: "give a text file" };

/// An MRT dump of a table.
pub const MRT_TABLE: Recognised =
    Recognised { what: "an MRT dump of a BGP table", remedy: "convert it to text: bgpdump -m FILE" };

const MRT_UPDATES: Recognised = Recognised {
    what: "an MRT file of BGP updates (BGP4MP), not of a table",
    remedy: "for a table, give the collector's table dump (bview or rib); for `route bench --updates`, convert it: \
             bgpdump -m FILE | awk -F'|' '$3==\"A\"{print $2,\"a\",$6,$9} $3==\"W\"{print $2,\"w\",$6,\"-\"}'",
};

const MRT_OTHER: Recognised = Recognised {
    what: "an MRT file of OSPF or IS-IS messages, not of a table",
    remedy: "give a dump of a BGP table (TABLE_DUMP_V2)",
};

/// Recognises a compressed file that [`decompress`](super::decompress()) does not decompress.
pub(super) fn recognise_packed(beginning: &[u8]) -> Option<Recognised> {
    PACKED.iter().find(|(magic, _)| beginning.starts_with(magic)).map(|(_, recognised)| *recognised)
}

/// Recognises an MRT file (RFC 6396) by the header of its first record: a time, the type, and a subtype below 256.
pub fn recognise_mrt(bytes: &[u8]) -> Option<Recognised> {
    let (header, _) = bytes.split_first_chunk::<12>()?;
    match (u16::from_be_bytes([header[4], header[5]]), header[6]) {
        (12 | 13, 0) => Some(MRT_TABLE),
        (16 | 17, 0) => Some(MRT_UPDATES),
        (11 | 32 | 33 | 48 | 49, 0) => Some(MRT_OTHER),
        _ => None,
    }
}

/// Recognises a file that is no text in UTF-8.
pub fn recognise_binary(bytes: &[u8]) -> Option<Recognised> {
    let utf_16 = [b"\xff\xfe", b"\xfe\xff"].iter().any(|mark| bytes.starts_with(*mark)).then_some(UTF_16);
    let capture = CaptureReader::<&[u8]>::is_capture(bytes).then_some(CAPTURE);
    recognise_packed(bytes).or(utf_16).or(capture).or_else(|| recognise_mrt(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_other_kinds_are_recognised() {
        let record =
            |kind: u16| [&[0x65, 0x53, 0xf1, 0][..], &kind.to_be_bytes(), &[0, 4, 0, 0, 0, 0]].concat();
        let cases: [(&[u8], &str); 12] = [
            (b"BZh91AY&SY", "bunzip2"),
            (b"\xfd7zXZ\0\0\x04", "unxz"),
            (b"\x04\x22\x4d\x18\x64", "unlz4"),
            (b"PK\x03\x04\x14\0", "unzip"),
            (b"\xff\xfea\0", "iconv"),
            (b"\xfe\xff\0a", "iconv"),
            (b"\xd4\xc3\xb2\xa1\x02\0\x04\0", "capture"),
            (b"\x0a\x0d\x0d\x0a", "capture"),
            (&record(13), "BGP table"),
            (&record(16), "BGP updates"),
            (&record(17), "BGP updates"),
            (&record(48), "OSPF"),
        ];
        for (bytes, part) in cases {
            let recognised = recognise_binary(bytes).map(|recognised| recognised.to_string());
            assert!(recognised.as_ref().is_some_and(|text| text.contains(part)), "{bytes:?}: {recognised:?}");
        }
        for text in ["", "BZ", "10.0.0.0/8 192.0.2.1\n", "\u{feff}10.0.0.0/8", "é"] {
            assert_eq!(recognise_binary(text.as_bytes()), None, "{text}");
        }
    }
}
