package rigline

import (
	"bufio"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"reflect"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"
)

// The client against the vectors that every client is held to: tests/vectors.
func vectors(t *testing.T, name string, into any) {
	t.Helper()
	text, err := os.ReadFile("../../tests/vectors/" + name)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, into); err != nil {
		t.Fatal(err)
	}
}

func lineBytes(t *testing.T, raw json.RawMessage, id string) []byte {
	t.Helper()
	line := struct {
		Hex, Text string
		Newline   *bool
	}{}
	if raw[0] == '"' {
		_ = json.Unmarshal(raw, &line.Text)
	} else if err := json.Unmarshal(raw, &line); err != nil {
		t.Fatal(err)
	}
	bytes, err := hex.DecodeString(line.Hex)
	if err != nil {
		t.Fatal(err)
	}
	bytes = append(bytes, strings.ReplaceAll(line.Text, "$ID", id)...)
	if line.Newline == nil || *line.Newline {
		bytes = append(bytes, '\n')
	}
	return bytes
}

type seen struct {
	params any
	sent   []any
}

// peer answers `initialize`, and one call with these lines.
func peer(t *testing.T, lines []json.RawMessage) (string, chan seen) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan seen, 1)
	go func() {
		var found seen
		defer func() { done <- found }()
		stream, err := listener.Accept()
		listener.Close()
		if err != nil {
			return
		}
		defer stream.Close()
		reader := bufio.NewReader(stream)
		read := func() (message struct {
			ID     json.RawMessage
			Params any
		}, err error) {
			line, err := reader.ReadBytes('\n')
			if err == nil {
				err = json.Unmarshal(line, &message)
			}
			return message, err
		}
		opening, err := read()
		if err != nil {
			return
		}
		fmt.Fprintf(stream, `{"jsonrpc":"2.0","id":%s,"result":{"name":"peer","version":"1.0.0","operations":{}}}`+"\n", opening.ID)
		call, err := read()
		if err != nil {
			return
		}
		found.params = call.Params
		for _, line := range lines {
			stream.Write(lineBytes(t, line, string(call.ID)))
		}
		stream.(*net.TCPConn).CloseWrite()
		rest, _ := io.ReadAll(reader)
		for _, line := range strings.Split(strings.TrimSpace(string(rest)), "\n") {
			var message any
			if json.Unmarshal([]byte(line), &message) == nil {
				found.sent = append(found.sent, message)
			}
		}
	}()
	return "tcp:" + listener.Addr().String(), done
}

// value is what JSON has for a value.
func value(t *testing.T, from any) (into any) {
	t.Helper()
	text, err := json.Marshal(from)
	if err == nil {
		err = json.Unmarshal(text, &into)
	}
	if err != nil {
		t.Fatal(err)
	}
	return into
}

func TestANumberIsJudgedAsTheVectorsSay(t *testing.T) {
	var cases []struct {
		Text, Less, More string
		Number           *string
	}
	vectors(t, "numbers.json", &cases)
	if len(cases) < 50 {
		t.Fatal("there are too few cases")
	}
	for _, one := range cases {
		result := Result{Outputs: []Output{{"x", one.Text}}}
		number, err := result.Number("x")
		if one.Number == nil {
			var known *Error
			if !errors.As(err, &known) || known.Kind != Invalid {
				t.Errorf("%q is read as %v", one.Text, number)
			}
			if is, err := Within(one.Text, "", ""); is || err != nil {
				t.Errorf("%q is within limits", one.Text)
			}
			if _, err := Within("1", one.Text, ""); err == nil && one.Text != "" {
				t.Errorf("%q is a limit", one.Text)
			}
			continue
		}
		if wanted, _ := strconv.ParseFloat(*one.Number, 64); err != nil || number != wanted {
			t.Errorf("%q is %v (%v), not %v", one.Text, number, err, wanted)
		}
		for _, check := range []struct {
			low, high string
			is        bool
		}{
			{"", "", true}, {*one.Number, *one.Number, true}, {one.Less, one.More, true}, {one.More, "", false}, {"", one.Less, false},
		} {
			if is, err := Within(one.Text, check.low, check.high); err != nil || is != check.is {
				t.Errorf("%q from %s to %s: %v %v", one.Text, check.low, check.high, is, err)
			}
		}
	}
}

func TestAFailureHasTheKindThatTheVectorsSay(t *testing.T) {
	var rows []struct {
		Kind   string
		Gevals *int
		Beside []string
		Client Kind
		Reads  struct{ Gevals string }
	}
	vectors(t, "failures.json", &rows)
	if len(rows) < 10 {
		t.Fatal("there are too few rows")
	}
	for _, row := range rows {
		for _, own := range []string{"", "E_OWN"} {
			data := map[string]any{}
			isTold := own != "" || len(row.Beside) > 0 && row.Beside[0] == "gevals"
			if isTold {
				data["rigline/kind"] = row.Kind
			}
			if own != "" {
				data["rigline/code"] = own
			}
			wanted := row.Client
			for _, other := range rows {
				if !isTold && other.Kind == row.Reads.Gevals {
					wanted = other.Client
				}
			}
			reply := map[string]any{"result": map[string]any{"success": false, "error": "why", "data": data}}
			if row.Gevals != nil {
				reply = map[string]any{"error": map[string]any{"code": *row.Gevals, "message": "why", "data": data}}
			}
			reply["jsonrpc"], reply["id"] = "2.0", "$ID"
			text, _ := json.Marshal(reply)
			line, _ := json.Marshal(strings.ReplaceAll(string(text), `"$ID"`, "$ID"))
			target, done := peer(t, []json.RawMessage{line})
			ctx := context.Background()
			rig, err := Connect(ctx, target, nil)
			if err != nil {
				t.Fatal(err)
			}
			_, err = rig.Call(ctx, "op", nil, nil)
			var known *Error
			if !errors.As(err, &known) || known.Kind != wanted || known.OwnCode() != own {
				t.Errorf("%s: %#v", row.Kind, err)
			}
			rig.Close()
			<-done
		}
	}
}

func TestACallGivesWhatTheVectorsSay(t *testing.T) {
	var cases []struct {
		Name  string
		Lines []json.RawMessage
		Gives map[string]any
	}
	vectors(t, "calls.json", &cases)
	if len(cases) < 50 {
		t.Fatal("there are too few cases")
	}
	for _, one := range cases {
		t.Run(one.Name, func(t *testing.T) {
			target, done := peer(t, one.Lines)
			logs := []any{}
			ctx := context.Background()
			rig, err := Connect(ctx, target, &Options{OnLog: func(log Log) {
				logs = append(logs, map[string]any{"level": log.Level, "message": log.Message, "data": log.Data})
			}})
			if err != nil {
				t.Fatal(err)
			}
			result, err := rig.Call(ctx, "op", nil, nil)
			gives := map[string]any{"kind": "success"}
			var failure *Error
			switch {
			case err == nil:
				gives["message"] = result.Message
			case !errors.As(err, &failure):
				t.Fatal(err)
			case failure.Kind == Failed:
				gives["kind"], gives["error"] = "failed", failure.Message
			case failure.Kind == Lost || failure.Kind == Invalid:
				gives["kind"] = string(failure.Kind)
			default:
				gives["kind"], gives["error"], gives["code"] = "refused", failure.Message, failure.Code
			}
			if result != nil {
				outputs, order := map[string]any{}, []string{}
				for _, output := range result.Outputs {
					outputs[output.Name] = output.Text
					order = append(order, output.Name)
				}
				gives["outputs"] = outputs
				if one.Name == "outputs keep their order" && !reflect.DeepEqual(order, []string{"b", "a", "10", "9"}) {
					t.Errorf("the order is %v", order)
				}
			}
			rig.Close()
			sent := (<-done).sent
			if sent == nil {
				sent = []any{}
			}
			gives["logs"], gives["sends"] = logs, sent
			if got := value(t, gives); !reflect.DeepEqual(got, any(one.Gives)) {
				t.Errorf("gives\n%v, not\n%v", got, one.Gives)
			}
		})
	}
}

func TestARequestIsWhatTheVectorsSay(t *testing.T) {
	var cases []struct {
		Name string
		Call struct {
			Operation, Workdir, Phase string
			Args                      json.RawMessage
			Env                       map[string]string
			Timeout                   float64
		}
		Params any
	}
	vectors(t, "requests.json", &cases)
	for _, one := range cases {
		target, done := peer(t, []json.RawMessage{json.RawMessage(strconv.Quote(`{"jsonrpc":"2.0","id":$ID,"result":{"success":true}}`))})
		ctx := context.Background()
		rig, err := Connect(ctx, target, nil)
		if err != nil {
			t.Fatal(err)
		}
		call := one.Call
		timeout := time.Duration(call.Timeout * float64(time.Second))
		if _, err := rig.Call(ctx, call.Operation, call.Args, &CallOptions{timeout, call.Phase, call.Env, call.Workdir}); err != nil {
			t.Error(one.Name, err)
		}
		rig.Close()
		if got := (<-done).params; !reflect.DeepEqual(got, one.Params) {
			t.Errorf("%s: %v, not %v", one.Name, got, one.Params)
		}
	}
}

func TestDurations(t *testing.T) {
	var cases [][2]any
	vectors(t, "durations.json", &cases)
	for _, one := range cases {
		// Rounded: 2.001 s is not a whole number of nanoseconds as a float64.
		span := time.Duration(one[0].(float64)*1e9 + 0.5)
		if span.String() != one[1] {
			t.Errorf("%v is %s, not %v", one[0], span, one[1])
		}
	}
}

func riglineBinary(t *testing.T) string {
	t.Helper()
	path := os.Getenv("RIGLINE_BINARY")
	if path == "" {
		t.Skip("RIGLINE_BINARY names no program")
	}
	return path
}

func kindOf(err error) Kind {
	var failure *Error
	if errors.As(err, &failure) {
		return failure.Kind
	}
	return ""
}

func TestAProgram(t *testing.T) {
	riglineBinary(t)
	ctx := context.Background()
	rig, err := Connect(ctx, "sim", nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := rig.Call(ctx, "power", map[string]any{"rail": "3V3", "on": true}, nil); err != nil {
		t.Fatal(err)
	}
	result, err := rig.Call(ctx, "measure", map[string]any{"channel": "3V3"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if volts, _ := strconv.ParseFloat(result.Output("volts"), 64); volts < 3.2 || volts > 3.4 {
		t.Errorf("%v V", volts)
	}
	never := map[string]any{"channel": "3V3", "min": 9, "max": 10, "within_ms": 5}
	for _, one := range []struct {
		operation string
		args      any
		kind      Kind
	}{
		{"fly", nil, UnknownOperation},
		{"measure", map[string]any{"channel": "X"}, BadArguments},
		{"measure", func() {}, BadArguments},
		{"wait-for", never, Failed},
	} {
		if _, err := rig.Call(ctx, one.operation, one.args, nil); kindOf(err) != one.kind {
			t.Errorf("%s: %v", one.operation, err)
		}
	}
	rig.Close()
	if _, err := rig.Call(ctx, "identify", nil, nil); kindOf(err) != Closed {
		t.Error(err)
	}
}

func TestABoardThatIsNotPluggedInIsAnErrorAtOnce(t *testing.T) {
	riglineBinary(t)
	t.Setenv("RIGLINE_ROOT", t.TempDir())
	_, err := Connect(context.Background(), "serial:auto", nil)
	if err == nil || !strings.Contains(err.Error(), "no rigline device is plugged in") {
		t.Fatal(err)
	}
}

func TestCuttingACallOffSwitchesOutputsOff(t *testing.T) {
	server := exec.Command(riglineBinary(t), "serve", "sim", "--tcp", "127.0.0.1:0")
	output, err := server.StdoutPipe()
	if err == nil {
		err = server.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	defer server.Wait()
	defer server.Process.Kill()
	line, err := bufio.NewReader(output).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	words := strings.Fields(line)
	address := words[len(words)-1]
	ctx := context.Background()
	first, err := Connect(ctx, address, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := first.Call(ctx, "power", map[string]any{"rail": "3V3", "on": true}, nil); err != nil {
		t.Fatal(err)
	}
	short, cancel := context.WithCancel(ctx)
	time.AfterFunc(100*time.Millisecond, cancel)
	never := map[string]any{"channel": "3V3", "min": 9, "max": 10, "within_ms": 60000}
	_, err = first.Call(short, "wait-for", never, &CallOptions{Timeout: 90 * time.Second})
	if kindOf(err) != Cancelled || !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	second, err := Connect(ctx, address, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	// It waits until the call that was cut off has ended.
	result, err := second.Call(ctx, "measure", map[string]any{"channel": "3V3"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if volts, _ := strconv.ParseFloat(result.Output("volts"), 64); volts > 0.5 {
		t.Errorf("the rail is at %v V", volts)
	}
}

func TestAProgramThatDies(t *testing.T) {
	ctx := context.Background()
	if _, err := Start(ctx, nil, "/nonexistent/program"); kindOf(err) != ConnectFailed {
		t.Error(err)
	}
	_, err := Start(ctx, nil, "sh", "-c", "echo oops >&2; exit 3")
	if kindOf(err) != Lost || !strings.Contains(err.Error(), "exit status 3") || !strings.Contains(err.Error(), "oops") {
		t.Error(err)
	}
}

// initialized is the beginning of a shell script that answers `initialize`.
const initialized = `read line
id=$(printf %s "$line" | sed 's/.*"id":\([0-9]*\).*/\1/')
echo '{"jsonrpc":"2.0","id":'$id',"result":{"name":"x","version":"1","operations":{}}}'
`

func TestGCloseEndsAlthoughAChildOfTheProgramHoldsItsOutput(t *testing.T) {
	rig, err := Start(context.Background(), nil, "sh", "-c", initialized+"sleep 60 &\nread line")
	if err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	rig.Close()
	if took := time.Since(begun); took > 30*time.Second {
		t.Errorf("it took %v", took)
	}
}

func TestGCloseCutsOffACallThatIsOut(t *testing.T) {
	rig, err := Start(context.Background(), nil, "sh", "-c", "trap 'exit 0' TERM\n"+initialized+"read line\necho got >&2\nsleep 60 & wait")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		_, err := rig.Call(context.Background(), "op", nil, nil)
		ended <- err
	}()
	program := rig.stream.(*child)
	for program.stderr.String() == "" {
		time.Sleep(10 * time.Millisecond)
	}
	begun := time.Now()
	rig.Close()
	if took := time.Since(begun); took >= patience {
		t.Errorf("it took %v", took)
	}
	if err := <-ended; kindOf(err) != Closed {
		t.Error(err)
	}
}

// lateContext has ended as soon as somebody waits for it, and by then the answer is there.
type lateContext struct {
	context.Context
	answer func()
}

func (c lateContext) Done() <-chan struct{} {
	c.answer()
	done := make(chan struct{})
	close(done)
	return done
}

func (c lateContext) Err() error { return context.Canceled }

func TestGAnAnswerThatIsThereCounts(t *testing.T) {
	for round := uint32(1); round <= 64; round++ {
		near, far := net.Pipe()
		go func() { _, _ = io.Copy(io.Discard, far) }()
		rig := &Rig{stream: near, first: round, next: round, pending: map[uint32]*call{}, ended: make(chan struct{})}
		ctx := lateContext{context.Background(), func() { rig.finish(round, answer{text: "there"}) }}
		if got, err := rig.ask(ctx, "shutdown", struct{}{}); err != nil || got.text != "there" {
			t.Fatal(round, err)
		}
		rig.Close()
		far.Close()
	}
}

func TestGAManifestMayBeOdd(t *testing.T) {
	for _, one := range []struct {
		manifest, name string
		operations     int
		fine           bool
	}{
		{`{"name":"x","version":1.5,"operations":{"a":{"params":true},"b":{"description":7,"params":{}},"c":null}}`, "x", 3, true},
		{`{"name":"x","operations":[]}`, "x", 0, true},
		{`{}`, "", 0, true},
		{`null`, "", 0, false},
		{`[]`, "", 0, false},
		{`"x"`, "", 0, false},
	} {
		near, far := net.Pipe()
		go func() {
			request := struct{ ID int }{}
			_ = json.NewDecoder(far).Decode(&request)
			fmt.Fprintf(far, "{\"jsonrpc\":\"2.0\",\"id\":%d,\"result\":%s}\n", request.ID, one.manifest)
			_, _ = io.Copy(io.Discard, far)
			far.Close()
		}()
		rig, err := Open(context.Background(), near, nil)
		if !one.fine {
			if kindOf(err) != Invalid {
				t.Errorf("%s: %v", one.manifest, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", one.manifest, err)
			continue
		}
		if rig.Manifest.Name != one.name || len(rig.Manifest.Operations) != one.operations {
			t.Errorf("%s: %+v", one.manifest, rig.Manifest)
		}
		rig.Close()
	}
}

func TestWordsOfExecAreThoseOfAShell(t *testing.T) {
	for text, want := range map[string][]string{
		"":                    nil,
		" a  b\tc ":           {"a", "b", "c"},
		`a 'b c' "d e"`:       {"a", "b c", "d e"},
		`a'b'"c"d`:            {"abcd"},
		`'' ""`:               {"", ""},
		`a\ b c\\`:            {"a b", `c\`},
		`"a\"b\\c\$d\x"`:      {`a"b\c$d\x`},
		"a\\\nb \"c\\\nd\"":   {"ab", "cd"},
		"\"e\\\\\nf\" 'a\\b'": {"e\\\nf", `a\b`},
	} {
		if got, ok := splitWords(text); !ok || !reflect.DeepEqual(got, want) {
			t.Errorf("%q: %q, %v", text, got, ok)
		}
	}
	for _, text := range []string{"'a", `"a`, `a\`} {
		if got, ok := splitWords(text); ok {
			t.Errorf("%q: %q", text, got)
		}
	}
}

func TestWhatIsNoTargetSaysWhichThereAre(t *testing.T) {
	for _, target := range []string{"", "exec:", `exec:""`, "exec:'a", "serial:", "replay:", "tcp:?x=1", "http://localhost:1/mcp", "serail:auto", "garbage"} {
		_, err := Connect(context.Background(), target, nil)
		var failure *Error
		if !errors.As(err, &failure) || failure.Kind != ConnectFailed || !strings.Contains(failure.Message, "known targets: sim, serial:PORT") {
			t.Errorf("%q: %v", target, err)
		}
	}
}

func TestAMissingCommandSaysHowToGetIt(t *testing.T) {
	t.Setenv("PATH", "/nonexistent")
	t.Setenv("RIGLINE_BINARY", "")
	for _, target := range []string{"sim", "serial:auto", "replay:run1", "tcp:localhost:7000?token-file=t"} {
		_, err := Connect(context.Background(), target, nil)
		if err == nil || !strings.Contains(err.Error(), "the command `rigline` is not in PATH; install it") || !strings.Contains(err.Error(), "RIGLINE_BINARY") {
			t.Errorf("%q: %v", target, err)
		}
	}
	t.Setenv("RIGLINE_BINARY", "/nonexistent/rigline")
	if _, err := Connect(context.Background(), "sim", nil); err == nil || !strings.Contains(err.Error(), "RIGLINE_BINARY names /nonexistent/rigline, which is not there") {
		t.Error(err)
	}
}

func TestAnOperationIsFoundInEitherSpelling(t *testing.T) {
	manifest := Manifest{Operations: map[string]Operation{"set-target": {}, "read_pin": {}, "a-b": {}, "a_b": {}, "x-y_z": {}, "x_y-z": {}}}
	for written, want := range map[string]string{
		"set_target": "set-target", "set-target": "set-target", "read-pin": "read_pin", "a-b": "a-b", "a_b": "a_b", "unknown_one": "unknown_one",
	} {
		if got, err := manifest.spelled(written); err != nil || got != want {
			t.Errorf("%s: %s, %v", written, got, err)
		}
	}
	if _, err := manifest.spelled("x_y_z"); err == nil || !strings.Contains(err.Error(), "may be x-y_z or x_y-z; write one of them") {
		t.Error(err)
	}
}

func TestAnAnswerAfterTheTimeLimitDoesNotCountAndTheSessionGoesOn(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	go func() {
		stream, err := listener.Accept()
		if err != nil {
			return
		}
		defer stream.Close()
		pauses := []time.Duration{0, 500 * time.Millisecond, 0}
		lines := bufio.NewScanner(stream)
		for at := 0; lines.Scan() && at < len(pauses); at++ {
			var request struct{ ID json.RawMessage }
			if json.Unmarshal(lines.Bytes(), &request) != nil {
				return
			}
			time.Sleep(pauses[at])
			fmt.Fprintf(stream, `{"jsonrpc":"2.0","id":%s,"result":{"name":"x","operations":{},"success":true,"message":"done"}}`+"\n", request.ID)
		}
	}()
	rig, err := Connect(context.Background(), "tcp:"+listener.Addr().String(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer rig.Close()
	result, err := rig.Call(context.Background(), "op", nil, &CallOptions{Timeout: 200 * time.Millisecond})
	var failure *Error
	if result != nil || !errors.As(err, &failure) || failure.Kind != Timeout || !strings.Contains(failure.Message, "beyond the time limit of 200ms; it said: done") {
		t.Fatalf("a late answer gave %v, %v", result, err)
	}
	if result, err := rig.Call(context.Background(), "op", nil, nil); err != nil || result.Message != "done" {
		t.Fatalf("the next call gave %v, %v", result, err)
	}
}

// A program of these lines of sh, which is asked for its operations and then called.
func shell(t *testing.T, script string) *Rig {
	t.Helper()
	ask := `read -r line; id=${line#*"\"id\":"}; id=${id%%[!0-9]*}; `
	head := ask + `echo "{\"jsonrpc\":\"2.0\",\"id\":$id,\"result\":{\"name\":\"x\",\"operations\":{\"op\":{}}}}"; ` + ask
	rig, err := Connect(context.Background(), "exec:sh -c '"+strings.ReplaceAll(head+script, "'", `'"'"'`)+"'", nil)
	if err != nil {
		t.Fatal(err)
	}
	return rig
}

func TestLogsWithoutAnEndTakeBoundedMemoryAndTheDroppedOnesAreCounted(t *testing.T) {
	rig := shell(t, `yes '{"jsonrpc":"2.0","method":"log","params":{"level":"info","message":"xxxx"}}' | head -n 50000; echo "{\"jsonrpc\":\"2.0\",\"id\":$id,\"result\":{\"success\":true}}"; cat >/dev/null`)
	defer rig.Close()
	got, err := rig.Call(context.Background(), "op", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	last := got.Logs[len(got.Logs)-1]
	if len(got.Logs) != 4097 || last.Level != "warn" || last.Message != "45904 further log lines were dropped, since there were too many" {
		t.Fatalf("%d logs; the last: %+v", len(got.Logs), last)
	}
}

// The answers to the peer's own requests are written by who reads: a peer that does not read is read no further.
func TestAPeerThatAsksWithoutReadingCostsBoundedMemoryAndItsCallEndsInTime(t *testing.T) {
	rig := shell(t, `yes '{"jsonrpc":"2.0","id":"a","method":"ping"}'`)
	defer rig.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	began := time.Now()
	_, err := rig.Call(ctx, "op", nil, nil)
	var failure *Error
	if !errors.As(err, &failure) || failure.Kind != Timeout || time.Since(began) > 20*time.Second {
		t.Fatalf("%v after %v", err, time.Since(began))
	}
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	if memory.HeapAlloc > 64<<20 {
		t.Fatalf("%d bytes", memory.HeapAlloc)
	}
}
