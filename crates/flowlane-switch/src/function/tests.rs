//! Functions against models that take one packet after the other.
