//! The log and what is made of it.
