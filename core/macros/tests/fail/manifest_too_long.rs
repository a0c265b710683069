#![allow(deprecated)]
use rigline::{Failure, Params};

macro_rules! arguments {
    ($name:ident of $type:ty: $($field:ident)*) => {
        #[derive(Params)]
        struct $name {
            $(pub $field: $type,)*
        }
    };
}

arguments! { Row of i64: au av aw ax ay az bu bv bw bx by bz cu cv cw cx cy cz du dv dw dx dy dz eu ev ew ex ey ez fu fv fw fx fy fz }
arguments! { Table of Row: au av aw ax ay az bu bv bw bx by bz cu cv cw cx cy cz du dv dw dx dy dz eu ev ew ex ey ez fu fv fw fx fy fz }

struct Rig;

#[rigline::extension(name = "rig")]
impl Rig {
//~^ [Rig] the manifest is longer than the 65,535 bytes that a gevals host reads in a line: shorten descriptions, or split the extension
    #[operation]
    fn fill(&mut self, table: Table) -> Result<(), Failure> {
        let _ = table;
        Ok(())
    }
}

fn main() {}
