//! Tests of the whole machine, the evaluation, and what-if analyses.

mod machine;
mod paper;
mod what_if;
