//! Edits made while a restore runs, and restores that were interrupted: nothing is lost.

use super::*;
