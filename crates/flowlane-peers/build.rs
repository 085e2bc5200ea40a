//! Compiles the shim, and links DPDK's hash and environment libraries.

fn main() {
    println!("cargo::rerun-if-changed=shim/rte_hash.c");
    let dpdk = pkg_config::Config::new()
        .cargo_metadata(false)
        .probe("libdpdk")
        .expect("needs DPDK's headers (Debian: libdpdk-dev) and pkg-config");
    cc::Build::new()
        .file("shim/rte_hash.c")
        .includes(&dpdk.include_paths)
        .flag("-include")
        .flag("rte_config.h")
        // What DPDK's headers need at least (its pkg-config file says so).
        .flag("-march=corei7")
        .flag("-O3")
        .compile("flowlane_peers_shim");
    for path in &dpdk.link_paths {
        println!("cargo::rustc-link-search=native={}", path.display());
    }
    for library in ["rte_hash", "rte_eal"] {
        println!("cargo::rustc-link-lib=dylib={library}");
    }
}
