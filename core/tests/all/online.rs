//! Online copies of servers that are written to meanwhile.
