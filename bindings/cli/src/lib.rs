//! forklift-cli
