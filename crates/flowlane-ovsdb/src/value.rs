//! Values of columns, in the notation of RFC 7047, 5.1.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde_json::{Value, json};

/// The identifier of a row.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Uuid(u128);

/// A value that is not in the notation of OVSDB.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("`{0}` is no value of OVSDB")]
pub struct MalformedValue(String);

fn malformed(value: &Value) -> MalformedValue {
    MalformedValue(value.to_string().chars().take(200).collect())
}

impl Uuid {
    /// Reads the usual notation, as in `550e8400-e29b-41d4-a716-446655440000`.
    pub fn read(text: &str) -> Option<Self> {
        let digits: String = text.chars().filter(|c| *c != '-').collect();
        let dashes = [8, 13, 18, 23];
        let is_usual = text.len() == 36 && dashes.iter().all(|at| text.as_bytes()[*at] == b'-');
        let is_hex = digits.len() == 32 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        (is_usual && is_hex).then(|| u128::from_str_radix(&digits, 16).ok().map(Self)).flatten()
    }
}

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = format!("{:032x}", self.0);
        let (a, b, c, d, e) = (&digits[..8], &digits[8..12], &digits[12..16], &digits[16..20], &digits[20..]);
        write!(f, "{a}-{b}-{c}-{d}-{e}")
    }
}

impl fmt::Debug for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A single value.
#[derive(Clone, Debug)]
pub enum Atom {
    /// A signed integer.
    Integer(i64),
    /// A floating-point number.
    Real(f64),
    /// True or false.
    Boolean(bool),
    /// A text.
    String(String),
    /// A row.
    Uuid(Uuid),
    /// A row that the same transaction inserts, by the name that it gives it.
    NamedUuid(String),
}

impl Atom {
    fn rank(&self) -> u8 {
        match self {
            Self::Integer(_) => 0,
            Self::Real(_) => 1,
            Self::Boolean(_) => 2,
            Self::String(_) => 3,
            Self::Uuid(_) => 4,
            Self::NamedUuid(_) => 5,
        }
    }

    fn read(value: &Value) -> Result<Self, MalformedValue> {
        let of_kind = |list: &[Value]| match list {
            [Value::String(kind), Value::String(text)] if kind == "uuid" => Uuid::read(text).map(Self::Uuid),
            [Value::String(kind), Value::String(text)] if kind == "named-uuid" => {
                Some(Self::NamedUuid(text.clone()))
            }
            _ => None,
        };
        let atom = match value {
            Value::Bool(is) => Some(Self::Boolean(*is)),
            Value::String(text) => Some(Self::String(text.clone())),
            Value::Number(number) => {
                number.as_i64().map(Self::Integer).or_else(|| number.as_f64().map(Self::Real))
            }
            Value::Array(list) => of_kind(list),
            Value::Null | Value::Object(_) => None,
        };
        atom.ok_or_else(|| malformed(value))
    }

    fn to_json(&self) -> Value {
        match self {
            Self::Integer(number) => json!(number),
            Self::Real(number) => json!(number),
            Self::Boolean(is) => json!(is),
            Self::String(text) => json!(text),
            Self::Uuid(uuid) => json!(["uuid", uuid.to_string()]),
            Self::NamedUuid(name) => json!(["named-uuid", name]),
        }
    }
}

impl Ord for Atom {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Integer(a), Self::Integer(b)) => a.cmp(b),
            (Self::Real(a), Self::Real(b)) => a.total_cmp(b),
            (Self::Boolean(a), Self::Boolean(b)) => a.cmp(b),
            (Self::String(a), Self::String(b)) | (Self::NamedUuid(a), Self::NamedUuid(b)) => a.cmp(b),
            (Self::Uuid(a), Self::Uuid(b)) => a.cmp(b),
            _ => self.rank().cmp(&other.rank()),
        }
    }
}

impl PartialOrd for Atom {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Atom {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Atom {}

impl From<&str> for Atom {
    fn from(text: &str) -> Self {
        Self::String(text.to_owned())
    }
}

impl From<bool> for Atom {
    fn from(is: bool) -> Self {
        Self::Boolean(is)
    }
}

impl From<i64> for Atom {
    fn from(number: i64) -> Self {
        Self::Integer(number)
    }
}

/// The value of a column.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Datum {
    /// A set; a single value is one of one element, and one that is left out the empty set.
    Set(BTreeSet<Atom>),
    /// A map.
    Map(BTreeMap<Atom, Atom>),
}

impl Datum {
    /// The empty set.
    pub fn empty() -> Self {
        Self::Set(BTreeSet::new())
    }

    /// A set of these.
    pub fn set<A: Into<Atom>>(atoms: impl IntoIterator<Item = A>) -> Self {
        Self::Set(atoms.into_iter().map(Into::into).collect())
    }

    /// A map with texts as keys.
    pub fn map<'a, V: Into<Atom>>(pairs: impl IntoIterator<Item = (&'a str, V)>) -> Self {
        Self::Map(pairs.into_iter().map(|(key, value)| (key.into(), value.into())).collect())
    }

    /// Reads a value.
    ///
    /// # Errors
    /// Where it is not in the notation.
    pub fn read(value: &Value) -> Result<Self, MalformedValue> {
        match value.as_array().map(Vec::as_slice) {
            Some([Value::String(kind), Value::Array(list)]) if kind == "set" => {
                list.iter().map(Atom::read).collect::<Result<_, _>>().map(Self::Set)
            }
            Some([Value::String(kind), Value::Array(list)]) if kind == "map" => {
                let pair = |pair: &Value| match pair.as_array().map(Vec::as_slice) {
                    Some([key, value]) => Ok((Atom::read(key)?, Atom::read(value)?)),
                    _ => Err(malformed(pair)),
                };
                list.iter().map(pair).collect::<Result<_, _>>().map(Self::Map)
            }
            _ => Ok(Self::Set(BTreeSet::from([Atom::read(value)?]))),
        }
    }

    /// The value in the notation.
    pub fn to_json(&self) -> Value {
        match self {
            Self::Set(atoms) if atoms.len() == 1 => atoms.first().expect("there is one").to_json(),
            Self::Set(atoms) => json!(["set", atoms.iter().map(Atom::to_json).collect::<Vec<_>>()]),
            Self::Map(pairs) => {
                let pair = |(key, value): (&Atom, &Atom)| json!([key.to_json(), value.to_json()]);
                json!(["map", pairs.iter().map(pair).collect::<Vec<_>>()])
            }
        }
    }

    /// Returns whether it is a set without elements, or a map without pairs.
    pub fn is_empty(&self) -> bool {
        match self {
            Self::Set(atoms) => atoms.is_empty(),
            Self::Map(pairs) => pairs.is_empty(),
        }
    }

    /// The elements of a set; of a map, none.
    pub fn atoms(&self) -> impl Iterator<Item = &Atom> {
        let Self::Set(atoms) = self else { return None.into_iter().flatten() };
        Some(atoms.iter()).into_iter().flatten()
    }

    /// The rows that a set names.
    pub fn uuids(&self) -> impl Iterator<Item = Uuid> {
        self.atoms().filter_map(|atom| if let Atom::Uuid(uuid) = atom { Some(*uuid) } else { None })
    }

    /// The text, if it is a single one.
    pub fn text(&self) -> Option<&str> {
        self.single().and_then(|atom| if let Atom::String(text) = atom { Some(&**text) } else { None })
    }

    /// The integer, if it is a single one.
    pub fn integer(&self) -> Option<i64> {
        self.single().and_then(|atom| if let Atom::Integer(number) = atom { Some(*number) } else { None })
    }

    /// The truth value, if it is a single one.
    pub fn boolean(&self) -> Option<bool> {
        self.single().and_then(|atom| if let Atom::Boolean(is) = atom { Some(*is) } else { None })
    }

    fn single(&self) -> Option<&Atom> {
        let mut atoms = self.atoms();
        let first = atoms.next();
        first.filter(|_| atoms.next().is_none())
    }

    /// The text of a key of a map of texts.
    pub fn get(&self, key: &str) -> Option<&str> {
        let Self::Map(pairs) = self else { return None };
        match pairs.get(&Atom::from(key))? {
            Atom::String(text) => Some(text),
            _ => None,
        }
    }

    /// The pairs of a map of texts, in the order of their keys; none of another value.
    pub fn pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        let map = if let Self::Map(pairs) = self { Some(pairs) } else { None };
        map.into_iter().flatten().filter_map(|pair| match pair {
            (Atom::String(key), Atom::String(value)) => Some((&**key, &**value)),
            _ => None,
        })
    }

    /// Applies a difference, as it comes in `update2` and `update3`: elements of a set come or go, and so do pairs of a map, where one
    /// with another value is changed.
    pub(crate) fn change(&mut self, difference: Self) {
        match (self, difference) {
            (Self::Set(atoms), Self::Set(changed)) => {
                for atom in changed {
                    if !atoms.remove(&atom) {
                        atoms.insert(atom);
                    }
                }
            }
            (Self::Map(pairs), Self::Map(changed)) => {
                for (key, value) in changed {
                    match pairs.get(&key) == Some(&value) {
                        true => _ = pairs.remove(&key),
                        false => _ = pairs.insert(key, value),
                    }
                }
            }
            (own, other) => *own = other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_and_written_in_the_notation_of_the_rfc() {
        let uuid = "550e8400-e29b-41d4-a716-446655440000";
        for value in [
            json!("br0"),
            json!(7),
            json!(-1.5),
            json!(true),
            json!(["uuid", uuid]),
            json!(["named-uuid", "row1"]),
            json!(["set", []]),
            json!(["set", [1, 2]]),
            json!(["map", []]),
            json!(["map", [["a", "b"], ["c", "d"]]]),
            json!(["map", [[1, ["uuid", uuid]]]]),
        ] {
            assert_eq!(Datum::read(&value).unwrap().to_json(), value);
        }
        for value in
            [json!(null), json!({}), json!(["set", 1]), json!(["uuid", "x"]), json!(["map", [["a"]]])]
        {
            assert!(Datum::read(&value).is_err(), "{value}");
        }
        assert!(Uuid::read("550e8400-e29b-41d4-a716-44665544000g").is_none());
        assert_eq!(Uuid::read(uuid).unwrap().to_string(), uuid);
    }

    #[test]
    fn differences_are_symmetric_for_sets_and_by_key_for_maps() {
        let mut set = Datum::set([1, 2, 3]);
        set.change(Datum::set([3, 4]));
        assert_eq!(set, Datum::set([1, 2, 4]));
        let mut map = Datum::map([("a", "1"), ("b", "2")]);
        map.change(Datum::map([("a", "1"), ("b", "3"), ("c", "4")]));
        assert_eq!(map, Datum::map([("b", "3"), ("c", "4")]));
    }

    #[test]
    fn single_values_are_told_from_sets() {
        assert_eq!(Datum::set(["x"]).text(), Some("x"));
        assert_eq!(Datum::set(["x", "y"]).text(), None);
        assert_eq!(Datum::empty().integer(), None);
        assert_eq!(Datum::set([7]).integer(), Some(7));
        assert_eq!(Datum::map([("k", "v")]).get("k"), Some("v"));
    }
}
