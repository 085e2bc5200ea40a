//! Tests of flowlane-gpu on a machine without a GPU.

mod absence;
mod changes;
mod classifier;
mod deferred;
mod faults;
mod graphs;
mod history;
mod host_device;
mod hostile;
mod kernels;
mod manifest;
mod rules;
