//! The machine as a whole, and what it says of rules of one's own.

mod machine;
mod paper;
mod what_if;
