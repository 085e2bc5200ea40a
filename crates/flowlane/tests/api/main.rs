//! Tests of the public interface, through public names only: answers against plain code that shares nothing with the tables.

mod acl;
mod exact;
mod lists;
mod machine;
mod random;
mod readers;
mod routes;
