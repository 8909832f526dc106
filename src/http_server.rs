//! Which path goes to which handler.

pub mod health;
pub mod generate;
pub mod openai;
pub mod sampling;
pub mod admin;
pub mod trace_layer;
pub mod error;
