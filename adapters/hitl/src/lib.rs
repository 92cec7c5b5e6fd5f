//! The human-in-the-loop agent service.
