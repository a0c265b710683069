//! The tool `sum` of `mcp_everything` over rmcp, for the comparison.

use rmcp::handler::server::wrapper::Parameters;
use rmcp::{Json, ServerHandler, ServiceExt, tool, tool_handler, tool_router, transport::stdio};

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Sum {
    /// The first.
    a: i32,
    /// The second.
    b: i32,
}

#[derive(serde::Serialize, schemars::JsonSchema)]
struct Summed {
    /// The sum.
    sum: i64,
}

#[derive(Clone)]
struct Server;

#[tool_router]
impl Server {
    /// Adds two numbers.
    #[tool]
    fn sum(&self, Parameters(Sum { a, b }): Parameters<Sum>) -> Json<Summed> {
        Json(Summed { sum: i64::from(a) + i64::from(b) })
    }
}

#[tool_handler]
impl ServerHandler for Server {}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    Server.serve(stdio()).await?.waiting().await?;
    Ok(())
}
