//! The parser: `cargo bench -p flowlane-bench --bench parse [-- --quick | --rounds N | --seconds S] [NAME ..]`.

fn main() -> std::process::ExitCode {
    flowlane_bench::harness::main(flowlane_bench::Topic::Parse)
}
