//! The cuckoo table: `cargo bench -p flowlane-bench --bench cuckoo [-- --quick | --rounds N | --seconds S] [NAME ..]`.

fn main() -> std::process::ExitCode {
    flowlane_bench::harness::main(flowlane_bench::Topic::Cuckoo)
}
