//! Tests of the `flowlane` binary. A single test program, because each one links all dependencies.

mod bench;
mod captures;
mod classify;
mod coming_from;
mod control;
mod gpu;
mod guard;
mod import;
mod limits;
mod namespaces;
mod outputs;
mod ports;
#[cfg(feature = "query")]
mod query;
mod recipes;
mod reference;
#[path = "../../src/repeats.rs"]
mod repeats;
mod route;
#[expect(dead_code, reason = "only its own tests are used here; the binary itself has no test target")]
#[path = "../../src/service/mod.rs"]
mod service;
mod services;
mod sim;
#[expect(
    dead_code,
    unused_macros,
    unused_imports,
    reason = "only its own tests are used here; the binary itself has no test target"
)]
#[path = "../../src/stderr.rs"]
mod stderr;
mod streams;
mod support;
mod switch;
mod take_over;
mod tune;
#[expect(dead_code, reason = "only its own tests are used here; the binary itself has no test target")]
#[path = "../../src/arguments/values.rs"]
mod values;
mod vocabulary;
mod vswitchd;
mod what_if;
