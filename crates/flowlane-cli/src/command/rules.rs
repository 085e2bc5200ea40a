//! `flowlane rules`: inspects and converts rule files.

use std::collections::BTreeMap;

use flowlane::packet::Field;
use flowlane::rule::{Format, ReadOptions, Rule, classbench, flow_syntax};
use serde::Serialize;

use super::import;
use crate::arguments::{OrAuto, RulesVerb, Source};
use crate::failure::Failure;
use crate::input;
use crate::kind::Kind;
use crate::output::{self, Output};
use crate::stderr::note;

pub(crate) fn run(verb: &RulesVerb) -> Result<(), Failure> {
    match verb {
        RulesVerb::Show { rules, list, json } => {
            let (rules, format) = input::read_rules(&rules.input())?;
            let summary = Summary::of(&rules, format);
            if *json {
                let listed = list.then(|| rules.iter().map(Rule::to_string).collect());
                return output::json(&Document { summary, rules: listed });
            }
            let mut out = Output::create(None)?;
            out.text(&summary.text())?;
            for rule in rules.iter().filter(|_| *list) {
                out.text(&format!("{rule}\n"))?;
            }
            out.finish()
        }
        RulesVerb::Convert { rules, from: Some(from), strict, output, .. } => {
            let file = rules.input().rules;
            let source = input::read_text(&file)?;
            let expected = match from {
                Source::Iptables => Kind::Iptables,
                Source::Nft => Kind::NftJson,
                Source::Cisco => Kind::Cisco,
            };
            let (text, left_out) = import::convert(&source, *from).map_err(|failure| {
                let name = file.display().to_string();
                Failure::other_kind(&[expected], &name, &source).unwrap_or(failure)
            })?;
            let mut out = Output::create(output.as_deref())?;
            out.text(&text)?;
            out.finish()?;
            let file = file.display().to_string();
            left_out.iter().for_each(|left| note!("flowlane: left out: {}", left.text(&file)));
            match left_out.len() {
                count if count > 0 && *strict => {
                    Err(Failure::Check(format!("{count} parts of the rules were left out")))
                }
                _ => Ok(()),
            }
        }
        RulesVerb::Convert { rules, to, output, .. } => {
            let (rules, _) = input::read_rules(&rules.input())?;
            let text = print(&rules, to.unwrap_or(OrAuto(None)))?;
            let mut out = Output::create(output.as_deref())?;
            out.text(&text)?;
            out.finish()
        }
    }
}

/// Prints rules; without a format, as ClassBench filters if all rules can be expressed, else as flows.
pub(crate) fn print(rules: &[Rule], format: OrAuto<Format>) -> Result<String, Failure> {
    // As many as are read.
    let rules_max = ReadOptions::default().rules_max;
    let flows = || {
        flow_syntax::print_openflow_rules(rules, rules_max).map_err(|e| {
            Failure::input_help(
                e.to_string(),
                "Open vSwitch has no ranges of ports: write prefixes, or convert the rules in parts",
            )
        })
    };
    match format.0 {
        Some(Format::Flows) => flows(),
        Some(Format::Classbench) => classbench::print(rules).map_err(|e| {
            Failure::input_help(e.to_string(), "use the format flows, which can express all rules")
        }),
        None => classbench::print(rules).or_else(|_| flows()),
    }
}

#[derive(Serialize)]
struct Document {
    summary: Summary,
    rules: Option<Vec<String>>,
}

#[derive(Serialize)]
struct Summary {
    format: &'static str,
    rules: usize,
    tables: usize,
    priorities: usize,
    masks: usize,
    ranges: usize,
    entries_after_expansion: usize,
    fields: Vec<FieldUse>,
}

#[derive(Serialize)]
struct FieldUse {
    field: &'static str,
    rules: usize,
    masks: usize,
}

impl Summary {
    fn of(rules: &[Rule], format: Format) -> Self {
        let mut masks = BTreeMap::new();
        let mut fields: BTreeMap<Field, BTreeMap<u128, usize>> = BTreeMap::new();
        let (mut ranges, mut expanded) = (0, 0);
        for rule in rules {
            let m = &rule.matches;
            let key: Vec<(u8, u32)> = m.words().iter().map(|w| (w.word, w.mask)).collect();
            *masks.entry(key).or_insert(0) += 1;
            let in_range = [m.tp_src_range(), m.tp_dst_range()].into_iter().flatten().count();
            ranges += in_range;
            expanded += m.expand_ranges().len();
            let mut left = m.mask();
            for info in Field::all() {
                let bits = left.get(info.field);
                if bits != 0 && applies(info.field, rule) {
                    left.set(info.field, 0);
                    *fields.entry(info.field).or_default().entry(bits).or_default() += 1;
                }
            }
        }
        let distinct =
            |of: &dyn Fn(&Rule) -> u32| rules.iter().map(of).collect::<std::collections::BTreeSet<_>>().len();
        Self {
            format: format.name(),
            rules: rules.len(),
            tables: distinct(&|r| r.table.into()),
            priorities: distinct(&|r| r.priority.0),
            masks: masks.len(),
            ranges,
            entries_after_expansion: expanded,
            fields: fields
                .into_iter()
                .map(|(field, masks)| FieldUse {
                    field: field.info().name,
                    rules: masks.values().sum(),
                    masks: masks.len(),
                })
                .collect(),
        }
    }

    fn text(&self) -> String {
        let row = |name: &str, n: usize| vec![name.to_owned(), output::count(n as u64)];
        let rows = [
            vec!["format".to_owned(), self.format.to_owned()],
            row("rules", self.rules),
            row("tables", self.tables),
            row("priorities", self.priorities),
            row("masks", self.masks),
            row("port ranges (not prefixes)", self.ranges),
            row("entries after range expansion", self.entries_after_expansion),
        ];
        let fields: Vec<Vec<String>> = self
            .fields
            .iter()
            .map(|f| vec![f.field.to_owned(), output::count(f.rules as u64), output::count(f.masks as u64)])
            .collect();
        output::table("", &["rules", ""], &rows) + &output::table("", &["field", "rules", "masks"], &fields)
    }
}

/// Of two fields that share key words (ARP and IPv4 addresses), selects the one that the rule's packets have.
fn applies(field: Field, rule: &Rule) -> bool {
    let (eth_type, mask) = rule.matches.get(Field::EthType);
    let arp = mask == 0xffff && (eth_type == 0x0806 || eth_type == 0x8035);
    match field {
        Field::ArpSpa | Field::ArpTpa | Field::ArpSha | Field::ArpTha => arp,
        Field::Ipv4Src | Field::Ipv4Dst | Field::NdSll | Field::NdTll => !arp,
        _ => true,
    }
}
