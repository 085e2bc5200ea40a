//! With the feature `peers-dpdk`: compiles the shims, and links those of DPDK's libraries that they use.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    #[cfg(feature = "peers-dpdk")]
    link_dpdk();
}

#[cfg(feature = "peers-dpdk")]
fn link_dpdk() {
    const SHIMS: [&str; 3] = ["shim/rte_hash.c", "shim/rte_acl.c", "shim/rte_fib.c"];
    for shim in SHIMS {
        println!("cargo::rerun-if-changed={shim}");
    }
    let dpdk = pkg_config::Config::new().cargo_metadata(false).probe("libdpdk").unwrap_or_else(|e| {
        panic!(
            "the feature peers-dpdk needs DPDK's headers and pkg-config (Debian: apt-get install libdpdk-dev): {e}"
        )
    });
    cc::Build::new()
        .files(SHIMS)
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
    for library in ["rte_acl", "rte_hash", "rte_fib", "rte_rib", "rte_eal"] {
        println!("cargo::rustc-link-lib=dylib={library}");
    }
}
