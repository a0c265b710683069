//! An extension with the tools that the official conformance suite of MCP asks for, and a few that
//! clients are tried on.
//!
//! `mcp_everything` serves on standard input and output, `mcp_everything --http [HOST:]PORT` by
//! Streamable HTTP at `/mcp`.

use std::process::ExitCode;
use std::time::Duration;

use rigline::params::SchemaNode;
use rigline::{Content, Context, Failure, Outcome, Outputs, Params};
use rigline_std::http::{HttpServer, Options};
use rigline_std::stdio;

/// One red pixel.
const PNG: &[u8] = &[
    0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a, 0x00, 0x00, 0x00, 0x0d, 0x49, 0x48, 0x44, 0x52, 0x00, 0x00, 0x00,
    0x01, 0x00, 0x00, 0x00, 0x01, 0x08, 0x02, 0x00, 0x00, 0x00, 0x90, 0x77, 0x53, 0xde, 0x00, 0x00, 0x00, 0x0c, 0x49,
    0x44, 0x41, 0x54, 0x08, 0xd7, 0x63, 0xf8, 0xcf, 0xc0, 0x00, 0x00, 0x03, 0x01, 0x01, 0x00, 0x18, 0xdd, 0x8d, 0xb0,
    0x00, 0x00, 0x00, 0x00, 0x49, 0x45, 0x4e, 0x44, 0xae, 0x42, 0x60, 0x82,
];
/// No samples.
const WAV: &[u8] = b"RIFF\x24\0\0\0WAVEfmt \x10\0\0\0\x01\0\x01\0\x40\x1f\0\0\x40\x1f\0\0\x01\0\x08\0data\0\0\0\0";

/// The schema that the suite wants to find again, keyword by keyword.
const VOCABULARY: &str = r##"{"$schema":"https://json-schema.org/draft/2020-12/schema","type":"object","$defs":{"address":{"$anchor":"addressDef","type":"object","properties":{"street":{"type":"string"},"city":{"type":"string"}}}},"properties":{"name":{"type":"string"},"address":{"$ref":"#/$defs/address"},"contactMethod":{"type":"string","enum":["phone","email"]},"phone":{"type":"string"},"email":{"type":"string"}},"allOf":[{"anyOf":[{"required":["phone"]},{"required":["email"]}]}],"if":{"properties":{"contactMethod":{"const":"phone"}},"required":["contactMethod"]},"then":{"required":["phone"]},"else":{"required":["email"]},"additionalProperties":false}"##;

struct Everything;

/// Arguments with the suite's schema. What they are does not matter.
#[derive(serde::Deserialize)]
struct Vocabulary {}

impl Params for Vocabulary {
    const SCHEMA: &'static SchemaNode = &SchemaNode::text(VOCABULARY);
}

/// How long to wait.
#[derive(Params)]
struct Wait {
    /// In milliseconds.
    #[param(maximum = 600_000)]
    ms: u32,
}

/// Two numbers.
#[derive(Params)]
struct Sum {
    /// The first.
    a: i32,
    /// The second.
    b: i32,
}

/// Their sum.
#[derive(Outputs)]
struct Summed {
    /// The sum.
    sum: i64,
}

#[rigline::extension(name = "everything", version = "1.0.0", description = "Tools of every kind, for tests")]
impl Everything {
    /// Answers with text.
    #[operation(name = "test_simple_text", read_only)]
    fn simple_text(cx: &mut Context<'_>) -> Result<Outcome, Failure> {
        cx.done("This is a simple text response for testing.")
    }

    /// Answers with an image.
    #[operation(name = "test_image_content", read_only)]
    fn image(cx: &mut Context<'_>) -> Result<Outcome, Failure> {
        cx.content("image", &Content::Image { mime_type: "image/png", data: PNG })?;
        Ok(Outcome::DONE)
    }

    /// Answers with a sound.
    #[operation(name = "test_audio_content", read_only)]
    fn audio(cx: &mut Context<'_>) -> Result<Outcome, Failure> {
        cx.content("audio", &Content::Audio { mime_type: "audio/wav", data: WAV })?;
        Ok(Outcome::DONE)
    }

    /// Answers with a resource.
    #[operation(name = "test_embedded_resource", read_only)]
    fn resource(cx: &mut Context<'_>) -> Result<Outcome, Failure> {
        cx.content(
            "resource",
            &Content::TextResource {
                uri: "test://embedded-resource",
                mime_type: "text/plain",
                text: "This is an embedded resource content.",
            },
        )?;
        Ok(Outcome::DONE)
    }

    /// Answers with content of several kinds.
    #[operation(name = "test_multiple_content_types", read_only)]
    fn several(cx: &mut Context<'_>) -> Result<Outcome, Failure> {
        cx.content("text", &Content::Text("Multiple content types test:"))?;
        cx.content("image", &Content::Image { mime_type: "image/png", data: PNG })?;
        cx.content(
            "resource",
            &Content::TextResource {
                uri: "test://mixed-content-resource",
                mime_type: "application/json",
                text: r#"{"test":"data","value":123}"#,
            },
        )?;
        Ok(Outcome::DONE)
    }

    /// Logs three times while it works.
    #[operation(name = "test_tool_with_logging", read_only)]
    async fn logging(cx: &mut Context<'_>) -> Result<Outcome, Failure> {
        cx.info("Tool execution started");
        cx.sleep(Duration::from_millis(50)).await;
        cx.info("Tool processing data");
        cx.sleep(Duration::from_millis(50)).await;
        cx.info("Tool execution completed");
        cx.done("Tool with logging executed successfully")
    }

    /// Logs, for callers who may not have asked for that.
    #[operation(name = "test_logging_tool", read_only)]
    fn log(cx: &mut Context<'_>) -> Result<Outcome, Failure> {
        cx.info("a log that only those get who ask for it");
        cx.done("logged")
    }

    /// Fails.
    #[operation(name = "test_error_handling", read_only)]
    fn error(cx: &mut Context<'_>) -> Result<Outcome, Failure> {
        cx.failed("This tool intentionally returns an error for testing")
    }

    /// Reports its progress.
    #[operation(name = "test_tool_with_progress", read_only)]
    async fn progress(cx: &mut Context<'_>) -> Result<Outcome, Failure> {
        for done in [0, 50, 100] {
            cx.progress(done, Some(100), format_args!("Completed step {done} of 100"));
            cx.sleep(Duration::from_millis(50)).await;
        }
        cx.done("done")
    }

    /// Reports nothing and takes its time.
    #[operation(name = "test_reconnection", read_only)]
    async fn reconnection(cx: &mut Context<'_>) -> Result<Outcome, Failure> {
        cx.sleep(Duration::from_millis(100)).await;
        cx.done("Reconnection test completed successfully.")
    }

    /// Answers without asking anything back.
    #[operation(name = "test_streaming_elicitation", read_only)]
    fn streaming(cx: &mut Context<'_>) -> Result<Outcome, Failure> {
        cx.done("nothing is asked of the client")
    }

    /// Takes what JSON Schema 2020-12 describes.
    #[operation(name = "json_schema_2020_12_tool", read_only)]
    fn vocabulary(_: Vocabulary, cx: &mut Context<'_>) -> Result<Outcome, Failure> {
        cx.done("taken")
    }

    /// Waits.
    #[operation(read_only)]
    async fn wait(args: Wait, cx: &mut Context<'_>) -> Result<Outcome, Failure> {
        cx.sleep(Duration::from_millis(args.ms.into())).await;
        cx.done(format_args!("waited {} ms", args.ms))
    }

    /// Adds two numbers.
    #[operation(read_only)]
    fn sum(args: Sum) -> Result<Summed, Failure> {
        Ok(Summed { sum: i64::from(args.a) + i64::from(args.b) })
    }
}

fn main() -> ExitCode {
    let mut words = std::env::args().skip(1);
    match (words.next().as_deref(), words.next()) {
        (Some("--http"), Some(address)) => match http(&address) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("{address}: {error}");
                ExitCode::FAILURE
            }
        },
        _ => stdio::serve(Everything),
    }
}

fn http(address: &str) -> std::io::Result<()> {
    let server = HttpServer::bind(address, Options::mcp())?;
    println!("http://{}/mcp", server.address()?);
    server.run(|_| Everything)
}
