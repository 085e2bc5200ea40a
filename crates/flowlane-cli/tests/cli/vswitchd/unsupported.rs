//! Columns whose effect there is not: the log says so.

use super::Host;
use crate::support::wait_until;

#[test]
fn the_log_says_what_is_asked_for_in_vain_once() {
    let Some(mut host) = Host::without_daemon("fvn") else { return };
    let log = host.at().join("log");
    host.start_daemon_with(&[&format!("--log-file={}", log.display())]);
    host.vsctl("add-br br0 -- add-port br0 d1 -- set Interface d1 type=dummy cfm_mpid=5 lldp:enable=true")
        .unwrap();
    host.vsctl("-- --id=@s create sFlow targets=\"127.0.0.1:6343\" -- set Bridge br0 sflow=@s").unwrap();
    host.vsctl("set Bridge br0 other_config:forward-bpdu=true").unwrap();
    host.vsctl("-- --id=@t create Flow_Table flow_limit=7 -- set Bridge br0 flow_tables:0=@t").unwrap();
    host.vsctl("-- --id=@p create CT_Timeout_Policy timeouts:icmp_first=9 -- --id=@z create CT_Zone timeout_policy=@p \
         -- --id=@d create Datapath ct_zones:5=@z -- set Open_vSwitch . datapaths:netdev=@d")
        .unwrap();
    host.vsctl("set Port d1 mac=\"02:00:00:00:00:07\" other_config:bond-detect-mode=miimon -- set Interface d1 bfd:oam=true").unwrap();
    host.vsctl("set-controller br0 unix:/nowhere -- set Bridge br0 other_config:in-band-queue=1").unwrap();
    host.vsctl(
        "set Controller br0 connection_mode=in-band controller_rate_limit=100 enable_async_messages=false other_config:dscp=8",
    )
    .unwrap();
    let said = || std::fs::read_to_string(&log).unwrap();
    let columns = [
        "cfm_mpid of d1",
        "lldp of d1",
        "sflow",
        "other_config:forward-bpdu",
        "flow_limit of Flow_Table",
        "ct_zones of Datapath",
        "mac of port d1",
        "other_config:bond-detect-mode=miimon of d1",
        "bfd:oam of d1",
        "other_config:in-band-queue",
        "connection_mode=in-band of controller unix:/nowhere",
        "controller_rate_limit of controller unix:/nowhere",
        "enable_async_messages of controller unix:/nowhere",
        "other_config:dscp of controller unix:/nowhere",
    ];
    for column in columns {
        let line = format!("column {column} is set, which is not supported: ");
        wait_until(column, || said().contains(&line));
        assert_eq!(said().matches(&line).count(), 1, "{}", said());
    }
}
