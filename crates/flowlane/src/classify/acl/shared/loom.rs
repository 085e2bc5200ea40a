//! Every order in which a reader and the writer can take turns (loom, up to three preemptions):
//! `RUSTFLAGS="--cfg loom" cargo test -p flowlane --release acl::shared::loom`. That no copy is changed while
//! somebody looks at it is what loom's cells check.

use ::loom::thread;

use super::left_right::Writer;

fn check(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = ::loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(model);
}

/// What is there after so many transactions, each of two changes.
fn advance(writer: &mut Writer<[u32; 2]>, to: u32) {
    writer.change(|hidden, _| {
        hidden[0] = to;
        hidden[1] = to;
    });
    writer.swap();
}

#[test]
fn a_reader_sees_whole_states_and_never_an_older_one_again() {
    check(|| {
        let mut writer = Writer::new([0; 2], [0; 2]);
        let mut reader = writer.reader();
        let reading = thread::spawn(move || {
            let first = reader.look(|value| *value);
            let second = reader.look(|value| *value);
            (first, second)
        });
        advance(&mut writer, 1);
        advance(&mut writer, 2);
        let (first, second) = reading.join().expect("does not panic");
        assert!(first[0] == first[1] && second[0] == second[1], "{first:?} {second:?}");
        assert!(first[0] <= second[0]);
    });
}

#[test]
fn what_is_shown_is_seen_by_who_looks_afterwards() {
    check(|| {
        let mut writer = Writer::new([0; 2], [0; 2]);
        let mut reader = writer.reader();
        let mut late = reader.clone();
        let reading = thread::spawn(move || reader.look(|value| *value));
        advance(&mut writer, 1);
        assert_eq!(late.look(|value| *value), [1; 2]);
        advance(&mut writer, 2);
        let seen = reading.join().expect("does not panic");
        assert_eq!(seen[0], seen[1]);
    });
}
