//! Forwarding tables: `cargo bench -p flowlane-bench --bench fib [-- --quick | --rounds N | --seconds S] [NAME ..]`.

fn main() -> std::process::ExitCode {
    flowlane_bench::harness::main(flowlane_bench::Topic::Fib)
}
