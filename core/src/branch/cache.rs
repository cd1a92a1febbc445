//! Clusters of checkpoints that are ready to clone: kept only where reflink makes them cheap, least recently used ones go first.
