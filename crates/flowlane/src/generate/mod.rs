//! (see the module's issue)
