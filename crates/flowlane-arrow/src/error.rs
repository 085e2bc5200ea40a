use flowlane::packet::columns::ColumnError;

/// Why record batches are not taken as packets, or not made of them.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ArrowError {
    /// There is no such field.
    #[error("there is no field `{name}`{}", like(*near))]
    Field {
        /// How it was called.
        name: String,
        /// A name that is like it.
        near: Option<&'static str>,
    },
    /// Captures have no such column.
    #[error(
        "there is no field `{name}`{}; other columns are packet, time, captured, length, fault and frame", like(*near)
    )]
    Column {
        /// How it was called.
        name: String,
        /// A name that is like it.
        near: Option<&'static str>,
    },
    /// No columns were asked for.
    #[error("no columns are named; leave them out for the usual ones")]
    NoColumns,
    /// No column is named as a field.
    #[error("no column is named as a field ({names}); columns are named as in rules, nw_src or tp_dst say")]
    NoFields {
        /// How columns are named.
        names: String,
    },
    /// Addresses of both families.
    #[error(
        "there are addresses of IPv4 and of IPv6, and no column `dl_type` says which packets are of which: 0x0800 and 0x86dd"
    )]
    BothFamilies,
    /// An address is null.
    #[error(
        "column `{name}` has nulls, and no column `dl_type` says what those packets are: 0x0800, 0x86dd, ..; give it"
    )]
    NullAddress {
        /// The column.
        name: String,
    },
    /// VLANs without what says whether there is a tag.
    #[error(
        "column `dl_vlan` does not say which packets have a tag; give `vlan_tci` (0x1000, the VLAN and the priority shifted by \
         13; 0: no tag), as captures have it"
    )]
    Tags,
    /// A column is of a type that is not taken.
    #[error(
        "column `{name}` is of Arrow type {found}; integers of 8 to 64 bits and binaries of as many bytes as the field has are \
         taken: cast it first"
    )]
    Type {
        /// The column.
        name: String,
        /// Its type.
        found: String,
    },
    /// Binaries of another length than the field's.
    #[error("column `{name}`{at} has {found} bytes a packet, where the field has {wanted}", at = row.map_or(String::new(), |row| format!(", row {row},")))]
    Width {
        /// The column.
        name: String,
        /// Where, unless all are so.
        row: Option<usize>,
        /// How many they have.
        found: usize,
        /// How many the field has.
        wanted: usize,
    },
    /// A column does not suit its field, or the others.
    #[error(transparent)]
    Values(#[from] ColumnError),
}

/// What is said of a name that is like one that was not found.
fn like(near: Option<&str>) -> String {
    near.map_or(String::new(), |name| format!("; did you mean `{name}`?"))
}
