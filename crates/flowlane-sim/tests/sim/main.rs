//! The machine as a whole, and what it says of rules of one's own.

mod machine;
mod what_if;
