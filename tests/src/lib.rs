//! Tests over the whole repository; the suites are in the folders beside.
