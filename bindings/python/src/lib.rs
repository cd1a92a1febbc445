//! forklift-python
