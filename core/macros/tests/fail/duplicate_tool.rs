//! Two operations that MCP clients cannot tell apart, and effects that contradict each other.

use rigline::Failure;

struct Rig;

#[rigline::extension(name = "rig", version = "1.0.0")]
impl Rig {
    /// Checks everything.
    #[operation]
    fn self_test(&mut self) -> Result<(), Failure> {
        Ok(())
    }

    /// Checks more.
    #[operation(name = "self_test")]
    fn more(&mut self) -> Result<(), Failure> {
        Ok(())
    }

    /// Destroys what it reads.
    #[operation(read_only, destructive)]
    fn read(&mut self) -> Result<(), Failure> {
        Ok(())
    }
}

fn main() {}
