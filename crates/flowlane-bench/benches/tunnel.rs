//! Tunnel endpoints: `cargo bench -p flowlane-bench --bench tunnel [-- --quick | --rounds N | --seconds S] [NAME ..]`.

fn main() -> std::process::ExitCode {
    flowlane_bench::harness::main(flowlane_bench::Topic::Tunnel)
}
