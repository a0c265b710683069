//! The tests of hosts that need no program of their own.

use rigline_test_support as _;

mod link;
mod tcp;
