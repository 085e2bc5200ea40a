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
    let said = || std::fs::read_to_string(&log).unwrap();
    let columns = [
        "cfm_mpid of d1",
        "lldp of d1",
        "sflow",
        "other_config:forward-bpdu",
        "flow_limit of Flow_Table",
        "ct_zones of Datapath",
    ];
    for column in columns {
        let line = format!("column {column} is set, which is not supported: ");
        wait_until(column, || said().contains(&line));
        assert_eq!(said().matches(&line).count(), 1, "{}", said());
    }
}
