//! Faults that other servers had, each made anew by what its public report says.

mod fields;
mod loading;
mod overload;
mod requests;
mod streaming;
mod templates;
