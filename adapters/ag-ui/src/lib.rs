//! AG-UI in front of and behind the gateway. Here: calling agents that speak it.
