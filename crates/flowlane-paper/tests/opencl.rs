//! Every OpenCL kernel, in every width, against the definition, if there is an OpenCL CPU; and the errors without one.

#[path = "../../flowlane-gpu/tests/gpu/rules.rs"]
mod rules;

use std::fs;
use std::path::Path;
use std::process::Command;

use flowlane::classify::acl::{AclConfig, Entry, best};
use flowlane::classify::{LinearSearch, RuleEngine};
use flowlane::generate::{Profile, Random, RuleConfig, draw_key, generate_rules};
use flowlane::packet::FlowKey;
use flowlane::rule::{Match, Priority, RuleId};
use flowlane_gpu::GpuError;
use flowlane_gpu::search::CLASS_RULES_MAX;
use flowlane_paper::opencl::{self, ClDevice, ClError, ClMethod, ClSearch, ClTable};
use rules::{WRONG, entries, keys, kinds, one_class, ternary};

/// Set in the process that may load OpenCL.
const INSIDE: &str = "FLOWLANE_OPENCL_TEST";

/// Runs the body in a process of its own, which must succeed, with these variables; drivers keep what they compile in a folder
/// of its own, too.
fn in_process(test: &str, variables: &[(&str, &str)], body: impl FnOnce()) {
    if std::env::var_os(INSIDE).is_some() {
        return body();
    }
    let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{test}-{}", std::process::id()));
    fs::create_dir_all(&cache).expect("the folder for test files can be written");
    let output = Command::new(std::env::current_exe().expect("a test binary"))
        .args([test, "--exact", "--nocapture"])
        .env(INSIDE, "1")
        .env("POCL_CACHE_DIR", &cache)
        .envs(variables.iter().copied())
        .output()
        .expect("the binary runs");
    fs::remove_dir_all(&cache).expect("a folder of this test's");
    let text =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && text.contains("1 passed"), "{test}: {}\n{text}", output.status);
    print!("{text}");
}

/// Runs the body on the cores of the CPU, where there is an OpenCL for them.
fn on_cpu(test: &str, body: impl FnOnce(ClDevice)) {
    in_process(test, &[], || match ClDevice::open(0) {
        Ok(device) => body(device),
        Err(error) if error.is_absence() => println!("skipped: {error}"),
        Err(error) => panic!("{error}"),
    });
}

fn check<const W: usize>(
    device: &ClDevice,
    method: ClMethod,
    entries: &[Entry<W>],
    keys: &[[u32; W]],
    what: &str,
) {
    let table = ClTable::build(device, method, &kinds(), entries, 0x5eed, 300).expect("it fits");
    let mut hits = vec![Some(WRONG); keys.len()];
    table.lookup_batch(keys, &mut hits).expect("the device works");
    for (key, hit) in keys.iter().zip(hits) {
        let expected = best(entries, &kinds(), key, 0).map(Entry::hit);
        assert_eq!(hit, expected, "{method}, {W} words, {what}, {key:x?}");
    }
}

fn check_all_methods<const W: usize>(device: &ClDevice, seed: u64) {
    let mut random = Random::new(seed);
    for (rules, masks, count) in [(0, 1, 3), (1, 1, 70), (40, 5, 257), (900, 9, 701)] {
        let entries = entries::<W>(&mut random, rules, masks);
        let keys = keys(&mut random, &entries, count);
        for method in ClMethod::ALL {
            check(device, method, &entries, &keys, &format!("{rules} rules, seed {seed}"));
        }
    }
}

#[test]
fn every_opencl_kernel_agrees_with_the_definition() {
    on_cpu("every_opencl_kernel_agrees_with_the_definition", |device| {
        check_all_methods::<4>(&device, 1);
        check_all_methods::<9>(&device, 2);
        check_all_methods::<10>(&device, 3);
        check_all_methods::<16>(&device, 4);
    });
}

#[test]
fn one_core_of_the_cpu_gives_the_same_answers() {
    on_cpu("one_core_of_the_cpu_gives_the_same_answers", |device| {
        let there = device.properties().cores;
        for asked in [0, there + 1] {
            let refused = ClDevice::open_cores(0, asked).expect_err("cores that there are not");
            assert_eq!(refused, ClError::Cores { asked, there });
        }
        match ClDevice::open_cores(0, 1) {
            Ok(core) => {
                assert_eq!(core.properties().cores, 1);
                check_all_methods::<4>(&core, 5);
            }
            // Drivers need not support sub-devices.
            Err(error) => println!("skipped: {error}"),
        }
    });
}

#[test]
fn a_class_of_more_rules_than_a_group_holds_is_split() {
    on_cpu("a_class_of_more_rules_than_a_group_holds_is_split", |device| {
        for (rules, classes) in [(CLASS_RULES_MAX, 1), (CLASS_RULES_MAX + 1, 2), (3 * CLASS_RULES_MAX, 3)] {
            let entries = one_class(rules);
            let keys: Vec<[u32; 4]> = (0..2 * rules as u32).map(|i| [i, i / 2 * 7 + i % 2, 1, 2]).collect();
            for method in ClMethod::ALL {
                let table = ClTable::build(&device, method, &kinds(), &entries, 1, 8).expect("it fits");
                let expected = (method != ClMethod::Linear).then_some(classes);
                assert_eq!((table.classes(), table.entries(), table.len()), (expected, rules, rules));
                check(&device, method, &entries, &keys, "one class");
            }
        }
    });
}

#[test]
fn sets_that_suit_no_opencl_kernel_get_right_answers() {
    on_cpu("sets_that_suit_no_opencl_kernel_get_right_answers", |device| {
        let mut random = Random::new(3);
        let wild: Vec<Entry<4>> = (0..50).map(|i| ternary(i, [0; 4], [0; 4])).collect();
        // A mask for every rule, and most rules match most keys.
        let few = |_| (random.bits() & random.bits() & random.bits()) as u32 & 0xf0f;
        let highs: Vec<u32> = (0..1600).map(few).collect();
        let masks: Vec<Entry<4>> = (0..400)
            .map(|i| ternary(i, [0; 4], std::array::from_fn(|w| highs[4 * i as usize + w])))
            .collect();
        // Equal rules, of which the best wins.
        let same: Vec<Entry<4>> = (0..300).map(|i| ternary(i, [0, 8, 8, 0], [0, 0xff, 0xf8, 0])).collect();
        for (what, entries) in [("wild", wild), ("a mask each", masks), ("the same", same)] {
            let keys: Vec<[u32; 4]> = (0..200)
                .map(|i| std::array::from_fn(|w| random.bits() as u32 & if i % 2 == w { 0xf } else { 0 }))
                .collect();
            for method in ClMethod::ALL {
                check(&device, method, &entries, &keys, what);
            }
        }
    });
}

#[test]
fn batches_of_every_size_come_back_in_order_from_several_threads() {
    on_cpu("batches_of_every_size_come_back_in_order_from_several_threads", |device| {
        let entries = one_class(40);
        let keys: Vec<[u32; 4]> = (0..150).map(|i| [0, 7 * (i % 60), i, 0]).collect();
        let expected: Vec<_> =
            keys.iter().map(|key| best(&entries, &kinds(), key, 0).map(Entry::hit)).collect();
        for method in ClMethod::ALL {
            let table = ClTable::build(&device, method, &kinds(), &entries, 1, 64).expect("it fits");
            std::thread::scope(|scope| {
                for sizes in [[0, 1, 2, 3], [31, 32, 33, 63], [64, 65, 128, 129], [150, 7, 127, 1]] {
                    let (table, keys, expected) = (&table, &keys, &expected);
                    scope.spawn(move || {
                        for size in sizes {
                            let mut hits = vec![Some(WRONG); size];
                            table.lookup_batch(&keys[..size], &mut hits).expect("the device works");
                            assert_eq!(hits, expected[..size], "{method}, a batch of {size}");
                        }
                    });
                }
            });
        }
    });
}

#[test]
fn a_table_too_large_for_the_cpu_is_refused_with_its_size() {
    on_cpu("a_table_too_large_for_the_cpu_is_refused_with_its_size", |device| {
        let small = device.with_memory_max(100_000);
        for method in ClMethod::ALL {
            let refused = ClTable::build(&small, method, &kinds(), &one_class(40_000), 1, 64);
            let Err(ClError::Rules(GpuError::Memory { needed_bytes, free_bytes, .. })) = refused else {
                panic!("{method}: {refused:?}");
            };
            assert!(needed_bytes > free_bytes && free_bytes == 100_000, "{method}");
            check(&small, method, &one_class(100), &[[0, 7, 0, 0]], "after a refusal");
        }
    });
}

#[test]
fn rules_for_flow_keys_get_the_answers_of_linear_search_through_opencl() {
    on_cpu("rules_for_flow_keys_get_the_answers_of_linear_search_through_opencl", |device| {
        let generated = generate_rules(&RuleConfig::new(Profile::Fw, 60)).expect("a profile");
        let mut rules: Vec<(RuleId, Priority, Match)> = generated
            .into_iter()
            .enumerate()
            .map(|(i, rule)| (RuleId(i as u32), Priority(i as u32 % 3), rule.matches))
            .collect();
        let mut random = Random::new(7);
        let mut keys: Vec<FlowKey> =
            (0..400).map(|_| draw_key(&rules[random.index(rules.len())].2, &mut random)).collect();
        // Not IPv4, on which all rules match.
        keys.push(FlowKey::zero());
        for method in ClMethod::ALL {
            let borrowed = rules.iter().map(|(id, priority, matches)| (*id, *priority, matches));
            let list = AclConfig { threads: 1, seed: 0x5eed, ..AclConfig::default() };
            let built = ClSearch::build(device.clone(), method, 64, list, borrowed);
            let mut table = built.expect("it fits");
            agree(&table, &rules, &keys);
            let removed = rules.remove(3);
            assert!(table.remove(removed.0));
            agree(&table, &rules, &keys);
            assert_eq!(table.failure(), None);
        }
    });
}

/// Checks a table against linear search.
fn agree(table: &ClSearch, rules: &[(RuleId, Priority, Match)], keys: &[FlowKey]) {
    let mut linear = LinearSearch::new(rules.len());
    for (id, priority, matches) in rules {
        linear.insert(*id, *priority, matches).expect("room");
    }
    let (mut hits, mut expected) = (vec![None; keys.len()], vec![None; keys.len()]);
    table.lookup_batch(keys, &mut hits);
    linear.lookup_batch(keys, &mut expected);
    assert_eq!(hits, expected, "{}", table.name());
}

#[test]
fn missing_opencl_is_reported_with_the_package_to_install() {
    // A file of this name that is no library, found before any that is one.
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("no-opencl-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("the folder for test files can be written");
    fs::write(folder.join("libOpenCL.so.1"), "no library").expect("written");
    let path = folder.to_str().expect("a path in UTF-8");
    in_process(
        "missing_opencl_is_reported_with_the_package_to_install",
        &[("LD_LIBRARY_PATH", path)],
        || {
            for error in [ClDevice::open(0).expect_err("no library"), opencl::all().expect_err("no library")]
            {
                assert!(matches!(error, ClError::NoOpenCl { .. }) && error.is_absence(), "{error}");
                assert!(
                    error.to_string().contains("libOpenCL.so.1")
                        && error.to_string().contains("pocl-opencl-icd")
                );
            }
        },
    );
    // The inner process does not own the folder.
    if std::env::var_os(INSIDE).is_none() {
        fs::remove_dir_all(&folder).expect("a folder of this test's");
    }
}

#[test]
fn a_missing_driver_is_distinguished_from_missing_opencl() {
    let none = [("OCL_ICD_VENDORS", "/nonexistent"), ("OCL_ICD_FILENAMES", "")];
    in_process("a_missing_driver_is_distinguished_from_missing_opencl", &none, || match ClDevice::open(0) {
        Err(ClError::NoPlatform) => assert!(ClError::NoPlatform.is_absence()),
        Err(error @ ClError::NoOpenCl { .. }) => println!("skipped: {error}"),
        // Loaders differ in which variables they know.
        Ok(_) => println!("skipped: this loader finds drivers otherwise"),
        Err(error) => panic!("{error}"),
    });
}

#[test]
fn cpus_are_described_and_counted_from_0() {
    on_cpu("cpus_are_described_and_counted_from_0", |device| {
        let all = opencl::all().expect("one");
        assert_eq!(device.properties(), &all[0]);
        assert!(all[0].cores >= 1 && all[0].memory_bytes >= 1 << 20 && !all[0].name.is_empty());
        assert!(matches!(ClDevice::open(all.len()), Err(ClError::NoCpu { .. })));
    });
}
