//! The `flowlane` binary: arguments and output, nothing else.
fn main() {}
