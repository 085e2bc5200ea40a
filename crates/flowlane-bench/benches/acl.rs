//! The acl table: `cargo bench -p flowlane-bench --bench acl [-- --quick | --rounds N | --seconds S] [NAME ..]`.

fn main() -> std::process::ExitCode {
    flowlane_bench::harness::main(flowlane_bench::Topic::Acl)
}
