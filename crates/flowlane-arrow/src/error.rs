use flowlane::packet::columns::ColumnError;

/// An error in the conversion between packets and record batches.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ArrowError {
    /// Unknown field.
    #[error("there is no field `{name}`{}", like(*near))]
    Field {
        /// Given name.
        name: String,
        /// Most similar name.
        near: Option<&'static str>,
    },
    /// Unknown column of captures.
    #[error(
        "there is no field `{name}`{}; columns other than fields are packet, time, captured, length, fault and frame", like(*near)
    )]
    Column {
        /// Given name.
        name: String,
        /// Most similar name.
        near: Option<&'static str>,
    },
    /// An empty list of columns.
    #[error("no columns given; omit the argument for the default columns")]
    NoColumns,
    /// No column has the name of a field.
    #[error(
        "no column has the name of a field ({names}); use names of rule fields, such as nw_src or tp_dst"
    )]
    NoFields {
        /// Names of the columns.
        names: String,
    },
    /// Addresses of both IP versions.
    #[error(
        "IPv4 and IPv6 addresses without a column `dl_type` that tells the packets apart (0x0800, 0x86dd)"
    )]
    BothFamilies,
    /// A null address.
    #[error(
        "column `{name}` has nulls; add a column `dl_type` (0x0800, 0x86dd, ..) for the type of those packets"
    )]
    NullAddress {
        /// Name of the column.
        name: String,
    },
    /// VLAN fields without the presence of a tag.
    #[error(
        "column `dl_vlan` does not tell which packets have a tag; add `vlan_tci` as captures have it (0x1000 + VLAN + priority << 13; \
         0: no tag)"
    )]
    Tags,
    /// A column of an unsupported type.
    #[error(
        "column `{name}` has the Arrow type {found}; cast it to an integer of 8 to 64 bits, or to a binary of the field's width"
    )]
    Type {
        /// Name of the column.
        name: String,
        /// Type of the column.
        found: String,
    },
    /// Binary values of a width other than the field's.
    #[error("column `{name}`{at} has {found} bytes per packet; the field has {wanted}", at = row.map_or(String::new(), |row| format!(", row {row},")))]
    Width {
        /// Name of the column.
        name: String,
        /// Row of the first one; `None` if all are.
        row: Option<usize>,
        /// Width of the values in bytes.
        found: usize,
        /// Width of the field in bytes.
        wanted: usize,
    },
    /// A column that does not fit its field or the other columns.
    #[error(transparent)]
    Values(#[from] ColumnError),
}

/// Formats a suggestion.
fn like(near: Option<&str>) -> String {
    near.map_or(String::new(), |name| format!("; did you mean `{name}`?"))
}
