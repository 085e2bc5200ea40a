//! Hash functions: `cargo bench -p flowlane-bench --bench hash [-- --quick | --rounds N | --seconds S] [NAME ..]`.

fn main() -> std::process::ExitCode {
    flowlane_bench::harness::main(flowlane_bench::Topic::Hash)
}
