//! The compiled kernels are those of the sources. `kernels/build.sh --check` compiles them again and compares bits.

use std::fs;
use std::path::Path;

use sha2::{Digest, Sha256};

#[test]
fn compiled_kernels_are_of_these_sources() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("kernels");
    let manifest = fs::read_to_string(folder.join("manifest.txt")).expect("a manifest");
    let hash =
        |bytes: &[u8]| Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let named: Vec<(&str, &str)> = manifest.lines().filter_map(|line| line.split_once("  ")).collect();
    for (expected, file) in &named {
        let bytes = fs::read(folder.join(file)).expect("a file that the manifest names");
        assert_eq!(hash(&bytes), *expected, "{file} has changed: run kernels/build.sh");
    }
    let files = fs::read_dir(&folder).expect("a folder").map(|entry| entry.expect("an entry").file_name());
    for file in files.map(|name| name.into_string().expect("a name")) {
        let source = file.ends_with(".cu") || file.ends_with(".cuh") || file.ends_with(".fatbin");
        assert!(!source || named.iter().any(|(_, name)| *name == file), "the manifest does not name {file}");
    }
    assert_eq!(hash(flowlane_gpu::device::KERNELS), named.last().expect("the binary").0);
}
