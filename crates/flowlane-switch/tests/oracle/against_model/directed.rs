//! Packets and rules put together for one fault each.
