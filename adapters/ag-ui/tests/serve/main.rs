//! The server side: requests, streams, and what a thread's client knows.

mod conversation;
mod losses;
mod requests;
mod scripts;
mod streams;
mod support;
mod threads;
mod verify;
