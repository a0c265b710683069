//! Two operations that MCP clients cannot tell apart, and effects that contradict each other.

use rigline::Failure;

struct Rig;

#[rigline::extension(name = "rig", version = "1.0.0")]
impl Rig {
    /// Checks everything.
    #[operation]
    fn self_test(&mut self) -> Result<(), Failure> {
    //~^ [self_test] the other operation of this name
        Ok(())
    }

    /// Checks more.
    #[operation(name = "self_test")]
    //~^ ["self_test"] `self-test` and `self_test` are one name for MCP clients, which accept only letters, digits and `_`, and 64 characters: rename one of the two
    fn more(&mut self) -> Result<(), Failure> {
        Ok(())
    }

    /// Destroys what it reads.
    #[operation(read_only, destructive)]
    //~^ [#[operation(read_only, destructive)]] an operation that changes nothing is neither destructive nor different when it is run again
    fn read(&mut self) -> Result<(), Failure> {
        Ok(())
    }
}

fn main() {}
