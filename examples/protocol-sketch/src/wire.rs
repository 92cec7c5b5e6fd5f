//! Types of the specification, as they appear on the wire. Still empty.
//!
//! Not here: their meaning in the canonical model (`decode`, `encode`, `connect`).
