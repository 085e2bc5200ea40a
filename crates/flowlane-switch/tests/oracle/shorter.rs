//! Rules with something left out, to find the least that differs.

use super::rules::{Rules, leads_back};

/// Returns the rules without one of them, without one action, match or bucket, or with the actions of a copy in its place.
pub(crate) fn shorter(rules: &Rules) -> Vec<Rules> {
    let with_text = |text| Rules::new(text, rules.groups.clone(), rules.tables);
    let with_groups = |groups| Rules::new(rules.text.clone(), groups, rules.tables);
    let texts = lines_changed(&rules.text, shorter_rule).into_iter().map(with_text);
    texts.chain(lines_changed(&rules.groups, shorter_group).into_iter().map(with_groups)).collect()
}

/// Returns the text without each of its lines, and with each of a line's shorter forms.
fn lines_changed(text: &str, forms: impl Fn(&str) -> Vec<String>) -> Vec<String> {
    let lines: Vec<&str> = text.lines().collect();
    let with = |at: usize, new: Option<&str>| {
        let kept = lines.iter().enumerate().filter_map(|(i, l)| if i == at { new } else { Some(*l) });
        kept.map(|line| format!("{line}\n")).collect::<String>()
    };
    let mut out: Vec<String> = (0..lines.len()).map(|at| with(at, None)).collect();
    for (at, line) in lines.iter().enumerate() {
        out.extend(forms(line).iter().map(|form| with(at, Some(form))));
    }
    out
}

fn shorter_rule(line: &str) -> Vec<String> {
    let (matches, actions) = line.split_once("actions=").expect("every rule has actions");
    let mut out: Vec<String> =
        shorter_list(actions).iter().map(|actions| format!("{matches}actions={actions}")).collect();
    let parts = split(matches.trim_end_matches(','));
    // Table, priority and cookie stay, and what a rule that leads back must match.
    let may_go = |at: &usize| !leads_back(parts[*at]);
    let fewer = (3..parts.len()).filter(may_go).map(|at| without(&parts, at));
    out.extend(fewer.map(|fewer| format!("{fewer},actions={actions}")));
    out
}

fn shorter_group(line: &str) -> Vec<String> {
    let parts: Vec<&str> = line.split(",bucket=").collect();
    let mut out = Vec::new();
    for at in 1..parts.len() {
        let mut fewer = parts.clone();
        let (head, actions) = fewer.remove(at).split_once("actions=").expect("every bucket has actions");
        if !fewer.is_empty() {
            out.push(fewer.join(",bucket="));
        }
        for actions in shorter_list(actions) {
            let mut changed: Vec<String> = parts.iter().map(|part| (*part).to_owned()).collect();
            changed[at] = format!("{head}actions={actions}");
            out.push(changed.join(",bucket="));
        }
    }
    out
}

/// Returns a list of actions without each of its own, and without each within them.
fn shorter_list(actions: &str) -> Vec<String> {
    let parts = split(actions);
    let mut out = Vec::new();
    for (at, part) in parts.iter().enumerate() {
        // What a push leaves open is set behind it, and a way back is marked in front of it.
        let belongs = actions.contains("push_mpls") && part.contains("->mpls_");
        let marks = part.contains("REG13") || part.contains("METADATA[4");
        if parts.len() > 1 && !belongs && !marks {
            out.push(without(&parts, at));
        }
        let Some((name, inner)) = part.strip_suffix(')').and_then(|part| part.split_once('(')) else {
            continue;
        };
        if !["clone", "write_actions", "learn"].contains(&name) {
            continue;
        }
        let forms = shorter_list(inner).into_iter().map(|inner| format!("{name}({inner})"));
        for form in forms.chain((name == "clone").then(|| inner.to_owned())) {
            let mut changed: Vec<&str> = parts.clone();
            changed[at] = &form;
            out.push(changed.join(","));
        }
    }
    out
}

fn without(parts: &[&str], at: usize) -> String {
    let kept: Vec<&str> = (0..parts.len()).filter(|&i| i != at).map(|i| parts[i]).collect();
    kept.join(",")
}

/// Splits at commas that are in no parentheses.
fn split(list: &str) -> Vec<&str> {
    let (mut depth, mut start, mut parts) = (0, 0, Vec::new());
    for (at, c) in list.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(&list[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&list[start..]);
    parts
}
