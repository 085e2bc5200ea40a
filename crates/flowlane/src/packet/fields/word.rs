//! Word numbers that code outside the table of fields names.

/// `in_port`.
pub const IN_PORT: usize = 0;
/// `malformed` and `recirc_id`.
pub const RECIRC_ID: usize = 1;
/// First of two words of `tun_id`.
pub const TUN_ID: usize = 2;
/// `tun_src`.
pub const TUN_SRC: usize = 4;
/// `tun_dst`.
pub const TUN_DST: usize = 5;
/// First of four words of `tun_ipv6_src`.
pub const TUN_IPV6_SRC: usize = 6;
/// First of four words of `tun_ipv6_dst`.
pub const TUN_IPV6_DST: usize = 10;
/// `tun_flags`, `tun_tos`, `tun_ttl`.
pub const TUN_FLAGS: usize = 14;
/// `tun_gbp_id`, `tun_gbp_flags`, `tun_type`.
pub const TUN_GBP: usize = 15;
/// `tun_gtpu_flags`, `tun_gtpu_msgtype`.
pub const TUN_GTPU: usize = 16;
/// GENEVE option class, type, length; two words of its data follow.
pub const TUN_OPTION: usize = 17;
/// First of three words of `dl_dst` and `dl_src`.
pub const ETH: usize = 20;
/// `vlan_tci` and `eth_type`.
pub const VLAN_ETH_TYPE: usize = 23;
/// `vlan_tpid` and `vlan_tci1`.
pub const VLAN_INNER: usize = 24;
/// First of three label stack entries.
pub const MPLS: usize = 25;
/// First of four words of `ipv6_src`.
pub const IPV6_SRC: usize = 28;
/// First of four words of `ipv6_dst`.
pub const IPV6_DST: usize = 32;
/// `tp_src` and `tp_dst`.
pub const PORTS: usize = 36;
/// `nw_proto`, `nw_tos`, `nw_ttl`, `ip_frag`.
pub const NW_PROTO: usize = 37;
/// `nw_src`.
pub const IPV4_SRC: usize = 38;
/// `nw_dst`.
pub const IPV4_DST: usize = 39;
/// `ipv6_label`.
pub const IPV6_LABEL: usize = 40;
/// `tcp_flags`, `icmp_type`, `icmp_code`.
pub const FLAGS: usize = 41;
/// `arp_op`; of neighbour discovery the options that are present, and `nd_options_type`.
pub const ARP_OP: usize = 42;
/// First of three words: `arp_sha`/`nd_sll` and `arp_tha`/`nd_tll`.
pub const ARP_HA: usize = 43;
/// `nd_reserved`.
pub const ND_RESERVED: usize = 46;
/// First of four words of `nd_target`.
pub const ND_TARGET: usize = 47;
/// First of two words of `metadata`.
pub const METADATA: usize = 51;
/// `pkt_mark`.
pub const PKT_MARK: usize = 53;
/// `ct_state`.
pub const CT_STATE: usize = 54;
/// `ct_zone` and `ct_nw_proto`.
pub const CT_ZONE: usize = 55;
/// `ct_mark`.
pub const CT_MARK: usize = 56;
/// `ct_nw_src`.
pub const CT_IPV4_SRC: usize = 57;
/// `ct_nw_dst`.
pub const CT_IPV4_DST: usize = 58;
/// `ct_tp_src` and `ct_tp_dst`.
pub const CT_PORTS: usize = 59;
/// First of the sixteen registers: `reg0`. Four of them are an `xxreg`.
pub const REG: usize = 60;
/// First of four words of `ct_label`.
pub const CT_LABEL: usize = 76;
/// First of four words of `ct_ipv6_src`.
pub const CT_IPV6_SRC: usize = 80;
/// First of four words of `ct_ipv6_dst`.
pub const CT_IPV6_DST: usize = 84;
/// `conj_id`.
pub const CONJ_ID: usize = 88;
/// `dp_hash`.
pub const DP_HASH: usize = 89;
/// `packet_type`.
pub const PACKET_TYPE: usize = 90;
/// `actset_output`.
pub const ACTSET_OUTPUT: usize = 91;
/// `skb_priority`.
pub const SKB_PRIORITY: usize = 92;
/// First of six words of NSH: flags, TTL, next protocol, metadata type; SPI and SI; four of context.
pub const NSH: usize = 93;
/// `tun_erspan_idx` and the others of ERSPAN.
pub const TUN_ERSPAN: usize = 99;
/// First of 28 words: `tun_metadata0` to `tun_metadata6`.
pub const TUN_METADATA: usize = 100;
/// The words from here on belong to no field.
pub const END: usize = 128;

/// The word of the key that `wordN` means in the text of a rule. Texts number words by the first layout of the key, so that
/// rules keep their meaning: `metadata` had words 2 and 3, `pkt_mark` had 59.
pub(crate) const fn of_number(number: usize) -> usize {
    match number {
        2 | 3 => METADATA + number - 2,
        4..=52 => number - 2,
        53..=58 => number + 1,
        59 => PKT_MARK,
        _ => number,
    }
}

/// The number of a word of the key in the text of a rule: the inverse of [`of_number`].
pub(crate) const fn number_of(w: usize) -> usize {
    match w {
        2..=50 => w + 2,
        51 | 52 => w - METADATA + 2,
        53 => 59,
        54..=59 => w - 1,
        _ => w,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::key::WORDS;

    #[test]
    fn numbers_of_words_in_texts_are_those_of_the_first_layout() {
        assert!((0..WORDS).all(|number| number_of(of_number(number)) == number));
        assert!((0..WORDS).all(|w| of_number(number_of(w)) == w));
        let first = [
            (0, IN_PORT),
            (2, METADATA),
            (22, ETH),
            (38, PORTS),
            (49, ND_TARGET),
            (59, PKT_MARK),
            (63, REG + 3),
        ];
        assert!(first.iter().all(|&(number, w)| of_number(number) == w));
    }
}
