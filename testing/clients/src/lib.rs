//! Clients for tests: drivers and strict decoders of each client protocol.
