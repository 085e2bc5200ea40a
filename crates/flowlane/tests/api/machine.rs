//! Widths and choices.

use flowlane::{AclEngine, ClassifierBuilder, ErrorKind, Tuning, max_simd, read_rules, set_max_simd};

#[test]
fn unknown_widths_and_kernels_are_refused() {
    for bits in [0, 63, 100, 1024, u32::MAX] {
        assert_eq!(set_max_simd(bits).unwrap_err().kind(), ErrorKind::Input, "{bits}");
    }
    let bits = max_simd();
    set_max_simd(bits).unwrap();
    assert_eq!(max_simd(), bits);
    assert!(Tuning::new().with("acl-tre", "scalar").unwrap_err().to_string().contains("acl-tre"));
    assert!(Tuning::new().with("acl-tree", "avx9000").unwrap_err().to_string().starts_with("acl-tree: "));
}

#[test]
fn installed_overrides_are_used() {
    Tuning::new().with("acl-tree", "scalar").unwrap().install();
    let used: Vec<(String, String)> =
        Tuning::in_use().iter().map(|(name, choice)| (name, choice.to_owned())).collect();
    assert!(used.contains(&("acl-tree".to_owned(), "scalar".to_owned())), "{used:?}");
    let rules = (0..50).map(|n| format!("udp,nw_src=10.0.0.{n},actions=drop\n")).collect::<String>();
    let acl =
        ClassifierBuilder::new().engine(AclEngine::Tree).build(read_rules(&rules, "r").unwrap()).unwrap();
    assert_eq!((acl.engine(), acl.variant()), ("tree", "scalar"));
    Tuning::new().install();
}
