//! Readers and writers for capture files.
