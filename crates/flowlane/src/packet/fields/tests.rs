//! Laws of the table of fields.

use super::*;

#[test]
fn the_documented_table_is_that_of_the_fields() {
    let mut table = "| field | names in rules | bits | of packets |\n|---|---|---|---|\n".to_owned();
    for info in Field::all() {
        let names: Vec<String> =
            [info.name].iter().chain(info.aliases).map(|name| format!("`{name}`")).collect();
        let (field, names, packets) = (info.field, names.join(", "), info.of_packets());
        table += &format!("| `{field:?}` | {names} | {} | {packets} |\n", info.width);
    }
    assert_eq!(
        include_str!("fields.md"),
        table,
        "packet/fields/fields.md differs from the table on the right"
    );
}

#[test]
fn names_are_unique() {
    let mut names: Vec<_> = FIELDS.iter().flat_map(|f| f.aliases.iter().copied().chain([f.name])).collect();
    let all = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), all);
}

#[test]
fn pieces_follow_word_boundaries() {
    let pieces: Vec<_> = Field::EthSrc.info().pieces().collect();
    assert_eq!(pieces, [(word::ETH + 1, 0, 16), (word::ETH + 2, 0, 32)]);
    let pieces: Vec<_> = Field::VlanPcp.info().pieces().collect();
    assert_eq!(pieces, [(word::VLAN_ETH_TYPE, 29, 3)]);
}

/// The class of a field, by its name: independent of the table.
fn class_by_name(name: &str) -> FieldClass {
    let metadata = [
        "in_port",
        "malformed",
        "recirc_id",
        "metadata",
        "pkt_mark",
        "conj_id",
        "dp_hash",
        "packet_type",
        "actset_output",
        "skb_priority",
    ];
    let is_register = |name: &str| {
        let number = ["xxreg", "xreg", "reg"].iter().find_map(|prefix| name.strip_prefix(prefix));
        number.is_some_and(|number| number.parse::<u8>().is_ok())
    };
    match name {
        name if metadata.contains(&name) || is_register(name) => FieldClass::Metadata,
        name if name.starts_with("tun_") => FieldClass::Tunnel,
        name if name.starts_with("ct_") => FieldClass::Connection,
        _ => FieldClass::Header,
    }
}

#[test]
fn classes_are_those_of_an_independent_list() {
    for info in &FIELDS {
        assert_eq!(info.class, class_by_name(info.name), "{}", info.name);
    }
}

#[test]
fn every_word_has_fields_of_one_class() {
    let mut all = WordSet::EMPTY;
    for class in FieldClass::ALL {
        let own: WordSet =
            FIELDS.iter().filter(|f| f.class == class).flat_map(|f| f.pieces().map(|p| p.0)).collect();
        assert_eq!(WordSet::of_class(class), own);
        assert!(!all.intersects(own), "{class:?} shares words with another class");
        all = all.union(own);
    }
    assert_eq!(all, WordSet::range(0..word::END));
    let nsh = WordSet::range(word::NSH..word::NSH + 6);
    let header = WordSet::range(word::ETH..word::METADATA).union(nsh);
    assert_eq!(WordSet::of_class(FieldClass::Header), header);
}

#[test]
fn wide_registers_are_views_of_registers() {
    let mut key = super::super::FlowKey::zero();
    let named = |name: String| Field::by_name(&name).unwrap();
    for n in 0..16 {
        key.set(named(format!("reg{n}")), 0x100 + n);
    }
    let registers =
        |first: u128, count: u128| (first..first + count).fold(0u128, |value, n| value << 32 | (0x100 + n));
    for n in 0..8 {
        assert_eq!(key.get(named(format!("xreg{n}"))), registers(2 * n, 2));
    }
    for n in 0..4 {
        assert_eq!(key.get(named(format!("xxreg{n}"))), registers(4 * n, 4));
    }
    key.set(Field::XxReg3, 7);
    assert_eq!((key.get(Field::Reg12), key.get(Field::Reg15), key.get(Field::XReg7)), (0, 7, 7));
}

#[test]
fn connection_fields_can_be_named_and_no_common_action_sets_them() {
    let connection: Vec<&FieldInfo> =
        Field::all().iter().filter(|f| f.class == FieldClass::Connection).collect();
    assert_eq!(connection.len(), 11);
    assert!(connection.iter().all(|info| Field::by_name(info.name) == Some(info.field) && !info.writable));
    let set: Vec<&str> =
        Field::all().iter().filter(|f| f.field.is_set_with_connection()).map(|f| f.name).collect();
    assert_eq!(set, ["ct_mark", "ct_label"]);
}

#[test]
fn options_of_tunnels_are_numbered() {
    for number in 0..TUN_METADATA_COUNT {
        let field = Field::tun_metadata(number).unwrap();
        assert_eq!(field.info().name, format!("tun_metadata{number}"));
        assert_eq!(field.tun_metadata_number(), Some(number));
    }
    assert_eq!(Field::tun_metadata(TUN_METADATA_COUNT), None);
    let numbered = FIELDS.iter().filter(|f| f.field.tun_metadata_number().is_some()).count();
    assert_eq!(numbered, TUN_METADATA_COUNT);
    assert_eq!(Field::by_name("tun_metadata_present"), None);
}
