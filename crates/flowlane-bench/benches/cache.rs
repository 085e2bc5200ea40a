//! The exact-match and the signature-match cache: `cargo bench -p flowlane-bench --bench cache [-- --quick | --rounds N | --seconds S] [NAME ..]`.

fn main() -> std::process::ExitCode {
    flowlane_bench::harness::main(flowlane_bench::Topic::Cache)
}
