use super::hash_rules;
use crate::generate::{RuleSetError, SeedConfig, SeedFile};
use crate::packet::Field;
use crate::rule::{Priority, Rule};
use std::collections::HashSet;

/// A small parameter file, made up for these tests: TCP to exact ports (3 of 4), any protocol and port (1 of 4).
fn text() -> String {
    let columns = |pair: usize| (0..25).map(|i| if i == pair { "\t1.0" } else { "\t0" }).collect::<String>();
    let levels: String = (0..32).map(|l| format!("{l}\t0.5\t0.5\t0.4\n")).collect();
    let correlated: String = (1..=32).map(|l| format!("{l}\t{}\n", if l <= 8 { 1.0 } else { 0.0 })).collect();
    format!(
        "-scale\n400\n#\n-prots\n6\t0.75{}\n0\t0.25{}\n#\n-flags\n6\t0x0000/0x0200,1.0\t\n#\n-extra\n0\n#\n\
         -spar\n#\n-spem\n#\n-dpar\n0.5\t20:23\n#\n-dpem\n0.8\t80:80\n0.2\t443:443\n#\n\
         -wc_wc\n24,0.5\t24,1.0\n32,0.5\t8,0.5\t16,0.5\n#\n-wc_em\n56,0.25\t32,0.5\t24,0.5\n64,0.75\t\t32,1.0\n#\n\
         -snest\n3\n#\n-sskew\n{levels}#\n-dnest\n2\n#\n-dskew\n{levels}#\n-pcorr\n{correlated}#\n\
         -openflow\n---\nin_port:\n  '7': 2\n#\n",
        columns(13),
        columns(0),
    )
}

fn parse(text: &str) -> Result<SeedFile, String> {
    SeedFile::parse("small_seed", text).map_err(|e| e.to_string())
}

fn generate(rules: usize, change: impl FnOnce(&mut SeedConfig)) -> Vec<Rule> {
    let mut config = SeedConfig::new(rules);
    change(&mut config);
    parse(&text()).expect("a parameter file").generate(&config).expect("rules")
}

fn lengths(rule: &Rule) -> (u32, u32) {
    let len = |field| rule.matches.get(field).1.count_ones();
    (len(Field::Ipv4Src), len(Field::Ipv4Dst))
}

#[test]
fn grown_sets_never_change() {
    let plain = generate(500, |c| c.seed = 5);
    let smooth = generate(500, |c| {
        c.smoothness = 4;
        c.address_scope = -0.4;
        c.port_scope = 0.3;
    });
    assert_eq!([hash_rules(&plain), hash_rules(&smooth)], [9962751989207717528, 11736581827408781736]);
}

#[test]
fn rules_have_the_file_s_distributions() {
    let rules = generate(4000, |_| ());
    assert_eq!(parse(&text()).expect("a parameter file").scale(), 400);
    assert!(rules.len() > 2500, "{}", rules.len());
    let allowed = HashSet::from([(24, 0), (8, 24), (16, 16), (32, 24), (24, 32), (32, 32)]);
    assert!(rules.iter().all(|r| allowed.contains(&lengths(r))));
    let tcp: Vec<_> = rules.iter().filter(|r| r.matches.get(Field::NwProto) == (6, 0xff)).collect();
    assert!(tcp.iter().all(|r| matches!(r.matches.get(Field::TpDst), (80 | 443, 0xffff))));
    let http = tcp.iter().filter(|r| r.matches.get(Field::TpDst).0 == 80).count() as f64 / tcp.len() as f64;
    assert!((0.7..0.9).contains(&http), "{http}");
    assert_eq!(rules.iter().map(|r| &r.matches).collect::<HashSet<_>>().len(), rules.len());
    assert_eq!(rules[0].priority, Priority(rules.len() as u32));
}

#[test]
fn nesting_keeps_to_the_limit() {
    let rules = generate(1000, |c| c.smoothness = 8);
    for (field, limit) in [(Field::Ipv4Src, 3), (Field::Ipv4Dst, 2)] {
        let prefixes: HashSet<(u32, u32)> = rules
            .iter()
            .map(|r| (r.matches.get(field).0 as u32, r.matches.get(field).1 as u32))
            .filter(|p| p.1 != u32::MAX) // the last level cannot be kept apart
            .collect();
        let chain = |&(value, mask): &(u32, u32)| {
            prefixes.iter().filter(|(v, m)| m & mask == *m && value & m == *v).count()
        };
        let longest = prefixes.iter().map(chain).max().unwrap_or(0);
        assert!(longest <= limit, "{field:?}: {longest}");
    }
}

#[test]
fn destinations_follow_their_sources_as_far_as_the_correlation_says() {
    let rules = generate(1000, |_| ());
    let both: Vec<_> = rules.iter().filter(|r| lengths(r).0 > 9 && lengths(r).1 > 9).collect();
    let octet = |r: &Rule, field| r.matches.get(field).0 >> 24;
    assert!(both.iter().all(|r| octet(r, Field::Ipv4Src) == octet(r, Field::Ipv4Dst)));
    assert!(both.len() > 500);
}

#[test]
fn scope_shortens_and_lengthens_prefixes() {
    let mean = |scope: f64| {
        let rules = generate(2000, |c| c.address_scope = scope);
        rules.iter().map(|r| f64::from(lengths(r).0 + lengths(r).1)).sum::<f64>() / rules.len() as f64
    };
    assert!(mean(1.0) < mean(0.0) && mean(0.0) < mean(-1.0));
}

#[test]
fn smoothing_makes_more_kinds_of_prefix_pairs() {
    let pairs = |smoothness| {
        generate(2000, |c| c.smoothness = smoothness).iter().map(lengths).collect::<HashSet<_>>().len()
    };
    assert!(pairs(0) <= 6 && pairs(2) > 20 && pairs(8) > pairs(2));
    assert!(pairs(64) > pairs(8));
}

#[test]
fn mistakes_are_named_with_their_line() {
    for (from, to, want) in [
        ("-prots\n6\t0.75", "-prots\n300\t0.75", "small_seed:5: expected a protocol number, its probability"),
        ("-scale\n", "", "small_seed:1: expected the name of a section"),
        ("443:443", "444:443", "small_seed:23: expected a probability and low:high"),
        ("-wc_em\n", "-hi_em\n", "small_seed:5: expected a section -wc_em, since protocol 6 has wc_em"),
        ("-dpem\n", "-spem\n", "small_seed:5: expected a section -dpem"),
        ("56,0.25", "65,0.25", "expected a sum of prefix lengths"),
        ("-snest\n3", "-snest\nx", "expected the nesting limit"),
    ] {
        let wrong = text().replacen(from, to, 1);
        let error = parse(&wrong).map(|_| ()).expect_err(from);
        assert!(error.contains(want), "{error}");
    }
    let marked = format!("\u{feff}{}", text().replacen("-snest\n3", "-snest\nx", 1));
    assert!(parse(&marked).map(|_| ()).expect_err("marked").contains("expected the nesting limit"));
    assert!(parse("").expect_err("empty").contains("expected a section -prots"));
}

#[test]
fn parameters_out_of_range_are_refused() {
    let file = parse(&text()).expect("a parameter file");
    let refused = |config| matches!(file.generate(&config), Err(RuleSetError::Range { .. }));
    assert!(refused(SeedConfig { smoothness: 65, ..SeedConfig::new(1) }));
    assert!(refused(SeedConfig { address_scope: 1.5, ..SeedConfig::new(1) }));
    assert!(refused(SeedConfig { port_scope: f64::NAN, ..SeedConfig::new(1) }));
    assert_eq!(file.generate(&SeedConfig::new(0)), Ok(Vec::new()));
}
