//! Desired objects.
