//! Leaders and followers that talk without the Lease.
