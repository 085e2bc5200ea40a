//! Groups, one a line, as `ovs-ofctl add-groups` reads them and `dump-groups` prints them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use super::super::ReadOptions;
use super::super::action::PortNo;
use super::super::error::{Fault, ReadErrors, Token, did_you_mean, read_numbered_lines};
use super::super::group::{Bucket, Group, GroupKind, Selection};
use super::{actions, bounded, key_value, names, number, print_actions, print_value, split, values};
use crate::packet::FieldRef;

/// The most groups of a file.
const GROUPS_MAX: usize = 1 << 16;

/// The keys of a group in front of its buckets.
const KEYS: [&str; 6] =
    ["group_id", "type", "selection_method", "selection_method_param", "fields", "bucket"];

/// Reads groups, one a line, each with its line; `file` is the text's name in errors.
///
/// A bucket without a number gets the smallest that is free, and one without a weight in a group of the type `select` the weight 1,
/// as in Open vSwitch.
///
/// ```
/// use flowlane::rule::ReadOptions;
/// use flowlane::rule::flow_syntax::{print_group, read_groups};
///
/// let text = "group_id=1,type=select,bucket=output:1,bucket=weight:3,actions=output:2";
/// let groups = read_groups(text, "groups.txt", &ReadOptions::default())?;
/// assert_eq!(groups[0].1.buckets[1].weight, 3);
/// let printed = "group_id=1,type=select,bucket=bucket_id:0,weight:1,actions=output:1,bucket=bucket_id:1,weight:3,actions=output:2";
/// assert_eq!(print_group(&groups[0].1), printed);
/// # Ok::<(), flowlane::rule::ReadErrors>(())
/// ```
///
/// # Errors
/// All lines that are wrong.
pub fn read_groups(
    text: &str,
    file: &str,
    options: &ReadOptions<'_>,
) -> Result<Vec<(usize, Group)>, ReadErrors> {
    let mut lines: BTreeMap<u32, usize> = BTreeMap::new();
    read_numbered_lines(text, file, (GROUPS_MAX, "groups"), |line, token| {
        let (id, group) = read_group(token, options)?;
        match lines.insert(group.id, line) {
            None => Ok((line, group)),
            Some(first) => Err(id.fault(format!("group {} is in line {first} already", group.id))),
        }
    })
}

/// Reads a line; returns the token of the group's number, too.
fn read_group<'a>(line: Token<'a>, options: &ReadOptions<'_>) -> Result<(Token<'a>, Group), Fault> {
    bounded(line)?;
    let line = line.without_comment();
    let mut tokens = split(line)?;
    if tokens.first().is_some_and(|first| first.text == "add") {
        tokens.remove(0);
    }
    let first = tokens.iter().position(|token| bucket_start(*token).is_some()).unwrap_or(tokens.len());
    let (head, rest) = tokens.split_at(first);
    let head = Head::read(head, line, options)?;
    let mut buckets: Vec<(Token<'a>, Bucket, bool)> = Vec::new();
    let mut parts: Vec<Token<'a>> = Vec::new();
    for (n, token) in rest.iter().enumerate() {
        parts.push(bucket_start(*token).unwrap_or(*token));
        if rest.get(n + 1).is_none_or(|next| bucket_start(*next).is_some()) {
            let start = rest[n + 1 - parts.len()];
            let (bucket, has_id) = read_bucket(start, &parts, head.kind, options)?;
            buckets.push((start, bucket, has_id));
            parts.clear();
        }
    }
    if head.kind == GroupKind::Indirect && buckets.len() != 1 {
        return Err(head.of_kind.fault("a group of the type indirect has one bucket"));
    }
    let buckets = number_buckets(buckets)?;
    let Head { id: (token, id), kind, selection, basis, .. } = head;
    Ok((token, Group { id, kind, selection, basis, buckets }))
}

/// Returns what follows `bucket=`, if a bucket begins here.
fn bucket_start(token: Token<'_>) -> Option<Token<'_>> {
    let rest = token.text.strip_prefix("bucket").map(|rest| rest.strip_prefix('s').unwrap_or(rest))?;
    let rest = rest.strip_prefix(['=', ':'])?;
    Some(token.part(token.text.len() - rest.len(), token.text.len()))
}

/// Gives numbers to the buckets that have none.
fn number_buckets(buckets: Vec<(Token<'_>, Bucket, bool)>) -> Result<Vec<Bucket>, Fault> {
    let mut taken = BTreeSet::new();
    for (token, bucket, _) in buckets.iter().filter(|(_, _, has_id)| *has_id) {
        if !taken.insert(bucket.id) {
            return Err(token.fault(format!("the group has a bucket {} already", bucket.id)));
        }
    }
    let mut free = (0..).filter(|id| !taken.contains(id));
    let numbered = buckets.into_iter().map(|(_, bucket, has_id)| {
        let id = if has_id { bucket.id } else { free.next().expect("there are more numbers than buckets") };
        Bucket { id, ..bucket }
    });
    Ok(numbered.collect())
}

/// The part of a group in front of its buckets.
struct Head<'a> {
    id: (Token<'a>, u32),
    /// The token of the type.
    of_kind: Token<'a>,
    kind: GroupKind,
    selection: Selection,
    basis: u64,
}

impl<'a> Head<'a> {
    fn read(tokens: &[Token<'a>], line: Token<'a>, options: &ReadOptions<'_>) -> Result<Self, Fault> {
        let (mut id, mut kind, mut method, mut basis, mut fields) = (None, None, None, 0, None);
        let mut of_selection = None;
        for token in tokens {
            let (key, value) = key_value(*token)?;
            let expected = || key.fault(format!("`{}=VALUE` is expected", key.text));
            match key.text {
                "group_id" => {
                    let max = u64::from(Group::MAX);
                    id = Some((value.unwrap_or(key), number(key, value, max)? as u32));
                }
                "type" => {
                    let value = value.ok_or_else(expected)?;
                    let problem = "a group's type is all, select, indirect or ff";
                    kind = Some((value, value.text.parse().map_err(|_| value.fault(problem))?));
                }
                "selection_method" => method = Some(value.ok_or_else(expected)?),
                "selection_method_param" => basis = number(key, value, u64::MAX)?,
                "fields" => fields = Some((key, read_fields(value.ok_or_else(expected)?, options)?)),
                "command_bucket_id" => {
                    return Err(key.fault("a group of a file is added as a whole; leave it out"));
                }
                other => {
                    let near = did_you_mean(other, KEYS.into_iter());
                    return Err(key.fault(format!("a group has no such key{near}")));
                }
            }
            of_selection = of_selection.or(key.text.contains("sele").then_some(key));
        }
        let end = line.part(line.text.trim_end().len(), line.text.trim_end().len());
        let id = id.ok_or_else(|| end.fault("the group has no number; add `group_id=NUMBER`"))?;
        let (of_kind, kind) = kind.ok_or_else(|| {
            end.fault("the group has no type; add `type=all`, `select`, `indirect` or `ff`")
        })?;
        if let Some(key) = of_selection.or(fields.as_ref().map(|(key, _)| *key))
            && kind != GroupKind::Select
        {
            return Err(key.fault("only a group of the type select selects by a hash"));
        }
        let selection = match (method, fields) {
            (None, None) => Selection::Default,
            (Some(method), fields) if method.text == "hash" => {
                Selection::Hash(fields.map_or_else(Vec::new, |(_, fields)| fields))
            }
            (Some(method), None) if method.text == "dp_hash" => Selection::DpHash,
            (_, Some((key, _))) => return Err(key.fault("fields need `selection_method=hash`")),
            (Some(method), None) => return Err(method.fault("a selection_method is hash or dp_hash")),
        };
        Ok(Self { id, of_kind, kind, selection, basis })
    }
}

/// Reads `FIELD`, or `FIELD=MASK,…`.
fn read_fields(list: Token<'_>, options: &ReadOptions<'_>) -> Result<Vec<FieldRef>, Fault> {
    let field = |token: Token<'_>| {
        let (name, mask) = token.split("=").map_or((token, None), |(name, mask)| (name, Some(mask)));
        let field = names::field_named(name)?;
        let Some(mask) = mask else { return Ok(FieldRef::whole(field)) };
        let bits = values::one(field.info(), mask, options)?;
        FieldRef::of_mask(field, bits).ok_or_else(|| mask.fault("a mask of bits side by side is expected"))
    };
    split(list)?.into_iter().map(field).collect()
}

/// Reads a bucket; returns whether it has a number.
fn read_bucket(
    start: Token<'_>,
    parts: &[Token<'_>],
    kind: GroupKind,
    options: &ReadOptions<'_>,
) -> Result<(Bucket, bool), Fault> {
    let weight = u16::from(kind == GroupKind::Select);
    let mut bucket = Bucket { id: 0, weight, watch_port: None, watch_group: None, actions: Vec::new() };
    let (mut has_id, mut tokens) = (false, Vec::new());
    for part in parts.iter().filter(|part| !part.text.is_empty()) {
        let (key, value) = key_value(*part)?;
        let number = |max: u32| number(key, value, max.into()).map(|number| number as u32);
        match key.text {
            "bucket_id" => (bucket.id, has_id) = (number(Group::MAX)?, true),
            "weight" if kind == GroupKind::Select => bucket.weight = number(u16::MAX.into())? as u16,
            "weight" => return Err(key.fault("only buckets of a group of the type select have a weight")),
            "watch_port" => bucket.watch_port = watched_port(key, value, options)?,
            "watch_group" => bucket.watch_group = Some(number(Group::MAX)?),
            "actions" | "action" => {
                tokens.extend(value.filter(|value| !value.text.is_empty()));
            }
            _ => tokens.push(*part),
        }
    }
    let watches = bucket.watch_port.is_some() || bucket.watch_group.is_some();
    match kind {
        GroupKind::FastFailover if !watches => {
            return Err(start.fault(
                "a bucket of a group of the type ff watches a port or a group; add `watch_port:PORT`",
            ));
        }
        GroupKind::All | GroupKind::Indirect if watches => {
            return Err(
                start.fault("only buckets of groups of the types ff and select watch a port or a group")
            );
        }
        GroupKind::All | GroupKind::Indirect | GroupKind::Select | GroupKind::FastFailover => {}
    }
    bucket.actions = actions::read_bucket(&tokens, options)?;
    Ok((bucket, has_id))
}

/// Reads a port that is watched; `ANY` is none.
fn watched_port(
    key: Token<'_>,
    value: Option<Token<'_>>,
    options: &ReadOptions<'_>,
) -> Result<Option<PortNo>, Fault> {
    let value = value.ok_or_else(|| key.fault("`watch_port:PORT` is expected"))?;
    match value.text.eq_ignore_ascii_case("any") {
        true => Ok(None),
        false => actions::port(value, options).map(Some),
    }
}

/// Prints a group as [`read_groups`] reads it.
pub fn print_group(group: &Group) -> String {
    let Group { id, kind, selection, basis, buckets } = group;
    let name: &str = if *kind == GroupKind::FastFailover { "ff" } else { kind.into() };
    let mut out = format!("group_id={id},type={name}");
    let mut add = |text: std::fmt::Arguments<'_>| out.write_fmt(text).expect("text takes text");
    match selection {
        Selection::Default => {}
        Selection::DpHash => add(format_args!(",selection_method=dp_hash")),
        Selection::Hash(_) => add(format_args!(",selection_method=hash")),
    }
    if *basis != 0 {
        add(format_args!(",selection_method_param={basis}"));
    }
    if let Selection::Hash(fields) = selection
        && !fields.is_empty()
    {
        let name = |part: &FieldRef| match part.is_whole() {
            true => part.field().info().name.to_owned(),
            false => print_value(part.field(), part.mask()),
        };
        add(format_args!(",fields({})", fields.iter().map(name).collect::<Vec<_>>().join(",")));
    }
    for bucket in buckets {
        add(format_args!(",{}", print_bucket(bucket, *kind)));
    }
    out
}

fn print_bucket(bucket: &Bucket, kind: GroupKind) -> String {
    let mut out = format!("bucket=bucket_id:{}", bucket.id);
    let mut add = |name: &str, value: u32| write!(out, ",{name}:{value}").expect("text takes text");
    if kind == GroupKind::Select {
        add("weight", bucket.weight.into());
    }
    if let Some(port) = bucket.watch_port {
        add("watch_port", port.0);
    }
    if let Some(group) = bucket.watch_group {
        add("watch_group", group);
    }
    out + ",actions=" + &print_actions(&bucket.actions)
}

#[cfg(test)]
mod tests;
