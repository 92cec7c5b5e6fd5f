//! The server of scripted agents, under the name that the tests of the gateway know it by.

#![allow(unused_imports, reason = "each test binary uses only part of it")]

pub use interlingua_testing_agents::server::*;
