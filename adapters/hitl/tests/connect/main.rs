//! The connector for agents behind the human-in-the-loop agent service.

mod answers;
mod hostile;
mod interrupted;
mod requests;
mod support;
