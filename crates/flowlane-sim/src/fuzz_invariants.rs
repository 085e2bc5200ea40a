//! Properties that hold for any bytes: checked by the fuzz target of this name and, on its inputs, by a plain test.

use std::sync::Arc;

use crate::config::Preset;
use crate::program::replay;
use crate::trace::Trace;

/// The most bytes of accessed arrays, of instructions and of accesses of a trace that is replayed: more take long.
const ARRAYS_MAX: u64 = 1 << 20;
const STEPS_MAX: usize = 1000;
const ACCESSES_MAX: usize = 4000;

/// Reads a trace in any form: it is equal when written and read back, and its replay ends.
pub fn trace(mut bytes: &[u8]) {
    let Ok(trace) = Trace::read(&mut bytes) else { return };
    let mut file = Vec::new();
    trace.write(&mut file).expect("memory is written");
    assert_eq!(Trace::read(&mut file.as_slice()).expect("a written trace is read"), trace);
    let arrays: u64 = trace.regions().iter().map(|r| r.end - r.start).sum();
    if arrays <= ARRAYS_MAX && trace.steps.len() <= STEPS_MAX && trace.accesses.len() <= ACCESSES_MAX {
        let replayed =
            replay(&Arc::new(trace), &Preset::Zen3.machine(), 1).expect("a replay does not get stuck");
        assert!(replayed.cycles.is_finite());
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    #[test]
    fn inputs_of_the_fuzz_target_keep_the_properties() {
        let fuzz = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz");
        let inputs = |folder: &str| std::fs::read_dir(fuzz.join(folder)).into_iter().flatten();
        let files: Vec<_> = inputs("corpus/trace").chain(inputs("regressions/trace")).collect();
        assert!(!files.is_empty());
        for file in files {
            let path = file.unwrap().path();
            println!("{}", path.display());
            super::trace(&std::fs::read(path).unwrap());
        }
    }
}
