//! Online copies: of a server under load, of one that refuses, and copies that are broken off.

mod broken_off;
mod busy;
mod faults;
mod hooked;
mod tablespaces;
