//! The page's files, as `std-adapter/web/build.sh` made them.

use include_dir::{Dir, include_dir};

static FILES: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/dist");

/// The file at a URL's path, and its media type.
pub(super) fn file(path: &str) -> Option<(&'static str, &'static [u8])> {
    let name = match path.strip_prefix('/')? {
        "" => "index.html",
        name => name,
    };
    // Paths are equal to others with a slash more, or with `.` in them.
    let file = FILES.get_file(name).filter(|file| file.path().to_str() == Some(name))?;
    let kind = match name.rsplit_once('.').map(|(_, extension)| extension)? {
        "html" => "text/html; charset=utf-8",
        "js" => "text/javascript; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "wasm" => "application/wasm",
        "svg" => "image/svg+xml",
        _ => "text/plain; charset=utf-8",
    };
    Some((kind, file.contents()))
}

/// The page itself, in which it says that a server like this one serves it: without a token, the
/// page has no other way to know.
pub(super) fn index() -> String {
    let page = FILES.get_file("index.html").and_then(|file| file.contents_utf8()).unwrap_or_default();
    let mark = format!("<meta name=\"rigline-server\" content=\"{}\" />\n  </head>", env!("CARGO_PKG_VERSION"));
    page.replacen("</head>", &mark, 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_pages_own_files_are_there() {
        assert_eq!(file("/rigline_web.wasm").unwrap().0, "application/wasm");
        assert_eq!(file("/rigline.js").unwrap().0, "text/javascript; charset=utf-8");
        for path in
            ["", "/nothing", "//rigline.js", "/../dist/rigline.js", "/./rigline.js", "/rigline.js/", "/%2e", "/assets"]
        {
            assert!(file(path).is_none(), "{path}");
        }
    }
}
