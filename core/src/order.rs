//! One message at a time: what protocols need whose clients cannot tell overlapping messages apart.
