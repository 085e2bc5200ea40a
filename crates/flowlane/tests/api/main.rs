//! What users of the library see, by its public names alone: answers against plain code that shares nothing with the tables.

mod acl;
mod exact;
mod lists;
mod machine;
mod random;
mod readers;
mod routes;
