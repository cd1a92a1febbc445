//! Projects: a worktree bound to a store and to a branch of its own.
