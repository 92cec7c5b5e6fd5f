//! Anthropic Messages in front of and behind the gateway. Here: calling agents and model servers that speak it.
