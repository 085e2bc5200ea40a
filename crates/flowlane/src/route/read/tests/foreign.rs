use super::*;

#[test]
fn texts_of_other_programs_are_recognised() {
    let cases = [
        ("Kernel IP routing table\nDestination     Gateway         Genmask\n", "`route` and `netstat -r`"),
        ("Iface\tDestination\tGateway\tFlags\neth0\t00000000\t0101A8C0\n", "/proc/net/route"),
        ("BIRD 2.0.8 ready.\nTable master4:\n", "BIRD"),
        ("inet.0: 12 destinations, 12 routes\n", "Junos"),
        ("IP Route Table for VRF \"default\"\n", "NX-OS"),
        ("BGP4MP|1418774400|A|192.0.2.1|64500|10.0.0.0/8|64500|IGP|192.0.2.7|0|0||NAG||\n", "updates"),
        ("{\n  \"0.0.0.0/0\":[{\"prefix\":\"0.0.0.0/0\"}]}\n", "`ip -j route show`"),
    ];
    for (text, part) in cases {
        let error = read_text(text).unwrap_err();
        assert!(
            error.starts_with("routes:1:1:") && error.contains(part) && error.contains("not read"),
            "{error}"
        );
    }
}
