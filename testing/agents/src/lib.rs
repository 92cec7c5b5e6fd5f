//! Scripted agents for tests: servers that speak each upstream protocol as its official server library does.
