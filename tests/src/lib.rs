//! forklift-tests
