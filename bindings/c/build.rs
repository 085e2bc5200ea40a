//! Generates the C header from the sources.

fn main() {
    println!("cargo::rerun-if-changed=src");
    println!("cargo::rerun-if-changed=cbindgen.toml");
    // The soname changes with FL_ABI.
    if std::env::var("CARGO_CFG_TARGET_OS").as_deref() == Ok("linux") {
        println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libflowlane.so.1");
    }
    let folder = std::env::var("CARGO_MANIFEST_DIR").expect("set by cargo");
    match cbindgen::generate(&folder) {
        Ok(bindings) => _ = bindings.write_to_file(format!("{folder}/include/flowlane.h")),
        // The compiler reports the cause.
        Err(error) => println!("cargo::warning=no header: {error}"),
    }
}
