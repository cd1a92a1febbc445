//! forklift-node
