//! Processes: how they are started, and that nothing of them is left.

use std::fs;
use std::time::{Duration, Instant};

use libtest_mimic::Trial;
use serde_json::json;

use crate::common::{exec, fake, go, message, options, this, trial};
use rigline_host::{CallContext, Host};

#[allow(clippy::too_many_lines, reason = "a list of tests")]
pub(crate) fn trials() -> Vec<Trial> {
    vec![
        // modelcontextprotocol/python-sdk#332, earendil-works/pi#4764.
        trial("a missing command is named", || async {
            for (program, expected) in [
                ("no-such-extension", "there is no program `no-such-extension` in PATH"),
                ("/no/such/extension", "there is no program `/no/such/extension`"),
                ("/etc/passwd", "`/etc/passwd` cannot be started: Permission denied"),
                ("/bin/false", "/bin/false has ended: exit status 1"),
            ] {
                let error = Host::connect(&exec(&[program]), options().0).await.unwrap_err().to_string();
                assert!(error.starts_with(expected), "{error}");
            }
        }),
        trial("a missing interpreter is not a missing command", || async {
            let folder = tempfile::tempdir().unwrap();
            let script = crate::executable::script(folder.path(), "ext", "#!/no/such/interpreter\n");
            let error = Host::connect(&exec(&[script.to_str().unwrap()]), options().0).await.unwrap_err().to_string();
            assert!(error.contains("cannot be started"), "{error}");
        }),
        // zeroclaw-labs/zeroclaw#8731, NousResearch/hermes-agent#47540.
        trial("no zombies, however it ends", || async {
            let scripts = ["init\nack\nexit 0", "init\nread\ndie", "init\nread\nforever", "init\nforever"];
            let mut ids = Vec::new();
            for round in 0..100 {
                let (mut options, _) = options();
                options.shutdown_timeout = Duration::from_millis(20);
                options.call_timeout = Duration::from_millis(20);
                let way = round % 4;
                let host = Host::connect(&fake(scripts[way]), options).await.unwrap();
                ids.push(host.child().unwrap().id());
                match way {
                    0 => drop(host.shutdown().await.unwrap()),
                    1 => drop(go(&host).await.unwrap_err()),
                    2 => {
                        go(&host).await.unwrap_err();
                        assert!(host.shutdown().await.unwrap().killed);
                    }
                    _ => drop(host),
                }
            }
            gone_soon(&ids).await;
        }),
        // zeroclaw-labs/zeroclaw#8731, NousResearch/hermes-agent#47540.
        Trial::test("no zombies after the runtime", || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            let host = runtime.block_on(Host::connect(&fake("init\nforever"), options().0)).unwrap();
            let id = host.child().unwrap().id();
            drop(runtime);
            drop(host);
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(gone_soon(&[id]));
            Ok(())
        }),
        // Abilityai/trinity#618, NousResearch/hermes-agent#35249.
        trial("a wrapper's children go with it", || async {
            for wrapper in [
                "exec 3<&0; \"$0\" fake \"$1\" <&3 & wait",
                "(sleep 300 &) ; exec \"$0\" fake \"$1\"",
                "sleep 300 & \"$0\" fake \"$1\"",
            ] {
                for script in ["init\nok\nack\nexit 0", "init\nok\nread\nforever"] {
                    let host =
                        Host::connect(&exec(&["sh", "-c", wrapper, &this(), script]), options().0).await.unwrap();
                    assert_eq!(message(go(&host).await), "ok 2");
                    let group = host.child().unwrap().id();
                    let started = Instant::now();
                    host.shutdown().await.unwrap();
                    assert!(started.elapsed() < Duration::from_secs(2), "{wrapper}");
                    group_gone_soon(group).await;
                }
                let host =
                    Host::connect(&exec(&["sh", "-c", wrapper, &this(), "init\nforever"]), options().0).await.unwrap();
                let group = host.child().unwrap().id();
                drop(host);
                group_gone_soon(group).await;
            }
        }),
        // Abilityai/trinity#618, NousResearch/hermes-agent#35249.
        trial("a held pipe does not hide the end", || async {
            let wrapper = "(sleep 300 &) ; exec \"$0\" fake \"$1\"";
            let host =
                Host::connect(&exec(&["sh", "-c", wrapper, &this(), "init\nread\nexit 7"]), options().0).await.unwrap();
            let group = host.child().unwrap().id();
            let started = Instant::now();
            let found = message(go(&host).await);
            assert!(found.starts_with("error: fake has ended: exit status 7"), "{found}");
            assert!(started.elapsed() < Duration::from_secs(1));
            group_gone_soon(group).await;
        }),
        // can1357/oh-my-pi#1710, anomalyco/opencode#43258.
        trial("it ends between two calls", || async {
            let (options, _) = options();
            let host = Host::connect(&fake("init\nok\nexit 0"), options).await.unwrap();
            assert_eq!(message(go(&host).await), "ok 2");
            tokio::time::sleep(Duration::from_millis(200)).await;
            assert!(message(go(&host).await).starts_with("error: fake has ended: exit status 0"));
        }),
        trial("two calls at once get their own replies", || async {
            let script = "init\nread\nread\nsay {\"jsonrpc\":\"2.0\",\"id\":$3,\"result\":{\"success\":true,\"message\":\"second\"}}\nsay {\"jsonrpc\":\"2.0\",\"id\":null,\"error\":{\"code\":-32700,\"message\":\"whose?\"}}\nsleep 50\nsay {\"jsonrpc\":\"2.0\",\"id\":$2,\"result\":{\"success\":true,\"message\":\"first\"}}\nforever";
            let host = Host::connect(&fake(script), options().0).await.unwrap();
            let (first, second) = tokio::join!(go(&host), go(&host));
            // Once the second is answered, the error without an id can only be about the first.
            assert_eq!(message(second), "second");
            assert_eq!(message(first), "failed: whose? (-32700)");
        }),
        trial("an error without id with two calls out fails neither", || async {
            let script = "init\nread\nread\nsay {\"jsonrpc\":\"2.0\",\"id\":null,\"error\":{\"code\":-32700,\"message\":\"whose?\"}}\nsay {\"jsonrpc\":\"2.0\",\"id\":$2,\"result\":{\"success\":true,\"message\":\"first\"}}\nsay {\"jsonrpc\":\"2.0\",\"id\":$3,\"result\":{\"success\":true,\"message\":\"second\"}}\nforever";
            let (options, seen) = options();
            let host = Host::connect(&fake(script), options).await.unwrap();
            let (first, second) = tokio::join!(go(&host), go(&host));
            assert_eq!((message(first), message(second)), ("first".to_owned(), "second".to_owned()));
            assert!(seen.has("names no request: whose?"));
        }),
        trial("a call's own timeout is told and kept", || async {
            let (options, _) = options();
            let host = Host::connect(&fake("init\nread\nforever"), options).await.unwrap();
            let context = CallContext { timeout: Some(Duration::from_millis(100)), ..CallContext::default() };
            let started = Instant::now();
            let error = host.call("go", &json!({}), context).await.unwrap_err();
            assert!(error.is_timeout() && started.elapsed() >= Duration::from_millis(300));
            assert!(started.elapsed() < Duration::from_secs(1));
        }),
        trial("a call that is given up leaves whole lines", || async {
            let (options, _) = options();
            // The child reads the long line only later: the pipe is full when the caller gives up.
            let host = Host::connect(&fake("init\nsleep 300\nok\nok\nforever"), options).await.unwrap();
            let long = json!({ "x": "x".repeat(500_000) });
            let call = host.call("go", &long, CallContext::default());
            assert!(tokio::time::timeout(Duration::from_millis(50), call).await.is_err());
            assert_eq!(message(go(&host).await), "ok 3");
        }),
        trial("a caller that gives up leaves the reading to those who wait", a_caller_gives_up),
        trial("the same on several threads", || async {
            let threads = tokio::runtime::Builder::new_multi_thread().worker_threads(3).enable_all().build().unwrap();
            let ran = threads.spawn(a_caller_gives_up());
            ran.await.unwrap();
            threads.shutdown_background();
        }),
        trial("what comes while nobody waits is read at once", || async {
            let (options, seen) = options();
            // More than a pipe holds.
            let log = format!(
                "say {{\"jsonrpc\":\"2.0\",\"method\":\"log\",\"params\":{{\"message\":\"{}\"}}}}\n",
                "x".repeat(50_000)
            );
            let script = format!(
                "init\n{}say {{\"jsonrpc\":\"2.0\",\"method\":\"log\",\"params\":{{\"message\":\"last\"}}}}\nok\nforever",
                log.repeat(8)
            );
            let path = std::env::temp_dir().join(format!("rigline-logs-{}", std::process::id()));
            fs::write(&path, script).unwrap();
            let host = Host::connect(&fake(&format!("from {}", path.display())), options).await.unwrap();
            let _ = fs::remove_file(&path);
            let until = Instant::now() + Duration::from_secs(5);
            while !seen.has("last") {
                assert!(Instant::now() < until, "it is not read");
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            assert_eq!(message(go(&host).await), "ok 2");
        }),
        trial("each call has its own deadline, and its late reply is nobody's", || async {
            let (options, seen) = options();
            let script = "init\nread\nread\nread\nsleep 500\nsay {\"jsonrpc\":\"2.0\",\"id\":$4,\"result\":{\"success\":true,\"message\":\"late\"}}\nsay {\"jsonrpc\":\"2.0\",\"id\":$2,\"result\":{\"success\":true,\"message\":\"first\"}}\nok\nforever";
            let host = Host::connect(&fake(script), options).await.unwrap();
            let within = |millis| {
                let context = CallContext { timeout: Some(Duration::from_millis(millis)), ..CallContext::default() };
                let (host, started) = (&host, Instant::now());
                async move { (message(host.call("go", &json!({}), context).await), started.elapsed()) }
            };
            // The latest one first: the others are due before anybody looks for it.
            let ((first, _), (second, after), (third, sooner)) = tokio::join!(within(20_000), within(150), within(50));
            assert_eq!(first, "first");
            for (found, after, least) in [(second, after, 350), (third, sooner, 250)] {
                assert!(found.starts_with("error: fake did not answer `go` within"), "{found}");
                assert!(after >= Duration::from_millis(least) && after < Duration::from_secs(1), "{after:?}");
            }
            assert_eq!(message(go(&host).await), "ok 5");
            assert!(seen.has("late reply"), "{:?}", seen.lines());
        }),
        trial("a death fails all that wait", || async {
            let (options, _) = options();
            let host = Host::connect(&fake("init\nread\nread\nread\nerror boom\nexit 3"), options).await.unwrap();
            let started = Instant::now();
            let (first, second, third) = tokio::join!(go(&host), go(&host), go(&host));
            for found in [first, second, third].map(message) {
                assert!(found.starts_with("error: fake has ended: exit status 3") && found.contains("boom"), "{found}");
            }
            assert!(started.elapsed() < Duration::from_secs(1));
        }),
        // antirez/ds4#43, oatpp/oatpp#1109.
        trial("a reply of any depth", || async {
            for depth in [100, 120, 100_000] {
                let (options, _) = options();
                let data = format!("{}{}", "[".repeat(depth), "]".repeat(depth));
                let script = format!(
                    "init\nread\nsay {{\"jsonrpc\":\"2.0\",\"id\":$id,\"result\":{{\"success\":true,\"message\":\"deep\",\"outputs\":{{\"x\":{data}}}}}}}\nok\nforever"
                );
                let path = std::env::temp_dir().join(format!("rigline-deep-{}-{depth}", std::process::id()));
                fs::write(&path, script).unwrap();
                let host = Host::connect(&fake(&format!("from {}", path.display())), options).await.unwrap();
                let found = message(go(&host).await);
                let _ = fs::remove_file(&path);
                let expected =
                    if depth > 125 { "error: fake answered with something that cannot be used" } else { "deep" };
                assert!(found.starts_with(expected), "{depth}: {found:.200}");
                assert_eq!(message(go(&host).await), "ok 3");
            }
        }),
        trial("a request that the peer has no room for is not sent", || async {
            let (options, _) = options();
            let script = "read\nsay {\"jsonrpc\":\"2.0\",\"id\":$id,\"result\":{\"name\":\"fake\",\"limits\":{\"request\":300}}}\nok\nforever";
            let host = Host::connect(&fake(script), options).await.unwrap();
            let found = message(host.call("go", &json!({ "x": "x".repeat(300) }), CallContext::default()).await);
            assert!(found.contains("and fake accepts at most 300"), "{found}");
            assert_eq!(message(go(&host).await), "ok 2");
        }),
        trial("a program that only prints is given up in time", || async {
            let (mut options, seen) = options();
            options.start_timeout = Duration::from_secs(1);
            let started = Instant::now();
            let error = Host::connect(&exec(&["yes"]), options).await.unwrap_err().to_string();
            assert!(error.contains("did not answer within 1s") && error.contains("\n  y\n"), "{error}");
            assert!(started.elapsed() < Duration::from_secs(3));
            assert!(seen.events().len() < 200);
        }),
        trial("cancelling ends the group and begins anew", || async {
            let (options, seen) = options();
            let host = Host::connect(&fake("init\nread\nforever"), options).await.unwrap();
            let group = host.child().unwrap().id();
            let (called, cancelled) = tokio::join!(go(&host), async {
                tokio::time::sleep(Duration::from_millis(50)).await;
                host.cancel().await
            });
            cancelled.unwrap();
            assert_eq!(message(called), "error: the call of fake was cancelled");
            group_gone_soon(group).await;
            assert!(host.is_connected() && host.child().unwrap().id() != group && seen.has("connected anew"));
        }),
        trial("a lost child comes back when it is asked for", || async {
            let (options, _) = options();
            let host = Host::connect(&fake("init\nok\nread\ndie"), options).await.unwrap();
            assert_eq!(message(go(&host).await), "ok 2");
            assert!(go(&host).await.unwrap_err().is_disconnected());
            host.reconnect().await.unwrap();
            assert_eq!(message(go(&host).await), "ok 2");
        }),
    ]
}

async fn a_caller_gives_up() {
    let (options, _) = options();
    let script = "init\nread\nread\nread\nsleep 200\nsay {\"jsonrpc\":\"2.0\",\"id\":$2,\"result\":{\"success\":true,\"message\":\"first\"}}\nsleep 100\nsay {\"jsonrpc\":\"2.0\",\"id\":$3,\"result\":{\"success\":true,\"message\":\"second\"}}\nsleep 100\nsay {\"jsonrpc\":\"2.0\",\"id\":$4,\"result\":{\"success\":true,\"message\":\"third\"}}\nok\nforever";
    let host = Host::connect(&fake(script), options).await.unwrap();
    let given_up = |millis| {
        let host = &host;
        async move { tokio::time::timeout(Duration::from_millis(millis), go(host)).await }
    };
    // One goes before anything has come, one between two replies; who asked last is woken first.
    let (gone, stays, gone_too) = tokio::join!(given_up(250), go(&host), given_up(50));
    assert_eq!(message(gone.unwrap()), "first");
    assert_eq!(message(stays), "second");
    assert!(gone_too.is_err());
    assert_eq!(message(go(&host).await), "ok 5");
}

async fn gone_soon(ids: &[u32]) {
    for id in ids {
        let started = Instant::now();
        while fs::metadata(format!("/proc/{id}")).is_ok() {
            assert!(started.elapsed() < Duration::from_secs(2), "{id} is left");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

/// Whether a process of the group is left that is not a zombie of somebody else's (the grandchildren are init's).
async fn group_gone_soon(group: u32) {
    let is_left = || {
        fs::read_dir("/proc").unwrap().flatten().any(|process| {
            let stat = fs::read_to_string(process.path().join("stat")).unwrap_or_default();
            let mut fields = stat.rsplit(") ").next().unwrap_or_default().split(' ');
            let (state, _parent, of) = (fields.next(), fields.next(), fields.next());
            of == Some(&group.to_string()) && state != Some("Z")
        })
    };
    let started = Instant::now();
    while is_left() {
        assert!(started.elapsed() < Duration::from_secs(2), "some of group {group} is left");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
