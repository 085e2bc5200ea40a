//! No port takes all entries of a table that packets fill.

use flowlane::packet::Field;

use super::*;
use crate::stage::assets::{AssetConfig, Assets};
use crate::stage::filter::{Filter, FilterConfig};

/// The entries after `wanted` packets from different hosts that come in on a port.
fn filled(stage: &mut StageTable, port: u32, wanted: u32) -> usize {
    for n in 0..wanted {
        let frame = Desc::v4(0x0a00_0000 + (port << 16) + n, 1, L4::Raw { proto: 89 }).build();
        let mut key = FlowKey::zero();
        let headers = parse(&frame, port, &mut key);
        let mut burst = Burst::new(1);
        burst.push(&frame, &key, headers, 1);
        stage.process(StageCall::of(1, &burst), &mut burst, LaneMask::first(1));
    }
    match &stage.stage {
        AnyStage::Filter(filter) => filter.len(),
        AnyStage::Assets(assets) => assets.len(),
        _ => unreachable!(),
    }
}

fn filter(config: FilterConfig) -> StageTable {
    bare(AnyStage::Filter(Filter::new(&FilterConfig { learn: true, ..config }).unwrap()))
}

#[test]
fn no_port_takes_all_entries() {
    for mut stage in [
        filter(FilterConfig::new(vec![Field::Ipv4Src], 400)),
        bare(AnyStage::Assets(Assets::new(AssetConfig::new(400)))),
    ] {
        // Half of all, half of the rest, and a port with few gets what it needs.
        assert_eq!(filled(&mut stage, 1, 1000), 200);
        assert_eq!(filled(&mut stage, 2, 1000), 300);
        assert_eq!(filled(&mut stage, 3, 20), 320);
        assert_eq!(filled(&mut stage, 1, 1000), 320);
    }
}

#[test]
fn a_port_has_at_most_its_fixed_share() {
    for (port_max, most) in [(30, 30), (usize::MAX, 400)] {
        let limited =
            FilterConfig { port_max: Some(port_max), ..FilterConfig::new(vec![Field::Ipv4Src], 400) };
        assert_eq!(filled(&mut filter(limited), 1, 1000), most);
        let limited = AssetConfig { port_max: Some(port_max), ..AssetConfig::new(400) };
        assert_eq!(filled(&mut bare(AnyStage::Assets(Assets::new(limited))), 1, 1000), most);
    }
}

#[test]
fn entries_of_the_configuration_are_no_port_s_share() {
    let config = FilterConfig { learn: true, idle: 0, ..FilterConfig::new(vec![Field::Ipv4Src], 400) };
    let mut configured = Filter::new(&config).unwrap();
    for n in 0..100 {
        let mut key = FlowKey::zero();
        parse(&Desc::v4(n, 1, L4::Raw { proto: 89 }).build(), 1, &mut key);
        configured.insert(&key, ageing::NEVER).unwrap();
    }
    let mut stage = bare(AnyStage::Filter(configured));
    assert_eq!(filled(&mut stage, 1, 1000), 250);
    // What goes gives its share back.
    (0..2).for_each(|_| stage.age(u64::from(u32::MAX)));
    assert_eq!(filled(&mut stage, 1, 0), 100);
    assert_eq!(filled(&mut stage, 1, 1000), 250);
}
