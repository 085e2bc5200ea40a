//! Tests of the whole machine, runs, the evaluation, and what-if analyses.

mod machine;
mod paper;
mod run;
mod translation;
mod what_if;
