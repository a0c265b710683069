// Package rigline is a client for gevals extensions and hardware-test rigs, of the standard library alone.
//
//	rig, err := rigline.Connect(ctx, "tcp:localhost:7000", nil)
//	if err != nil { … }
//	defer rig.Close()
//	result, err := rig.Call(ctx, "measure", map[string]any{"channel": "3V3"}, nil)
//	fmt.Println(result.Output("volts"))
//
// A context that ends cuts a call off: the session ends then, and the rig brings about its safe state.
package rigline

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"regexp"
	"sort"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
	"unicode"
	"unicode/utf8"
)

const (
	// LineLimit is the longest line that is taken from a peer, in bytes.
	LineLimit = 16 << 20
	// DefaultTimeout is how long a call may take unless its context or options say otherwise.
	DefaultTimeout = 30 * time.Second

	version    = "0.0.1"
	grace      = 2 * time.Second
	patience   = 5 * time.Second
	candidates = 8

	// How many logs of a call are kept, and how many bytes of them.
	mostLogs    = 4096
	mostLogText = 4 << 20
)

// Kind says what went wrong.
type Kind string

// What can go wrong. Failed is the operation's own logic; the others say nothing about what it looked at.
const (
	Failed           Kind = "failed"
	UnknownOperation Kind = "unknown-operation"
	BadArguments     Kind = "bad-arguments"
	Unreachable      Kind = "unreachable"
	Forbidden        Kind = "forbidden"
	Timeout          Kind = "timeout"
	Requirement      Kind = "requirement"
	Internal         Kind = "internal"
	TooLarge         Kind = "too-large"
	Refused          Kind = "refused"
	Invalid          Kind = "invalid"
	Lost             Kind = "lost"
	Cancelled        Kind = "cancelled"
	Closed           Kind = "closed"
	ConnectFailed    Kind = "connect"
)

// Error is what every function here returns as its error.
type Error struct {
	Kind      Kind
	Message   string
	Operation string
	// Code is the JSON-RPC error code; nil if none came.
	Code *int
	Data json.RawMessage
	// Cause is the context's or the system's error, if there is one.
	Cause error
}

func (e *Error) Error() string {
	if e.Operation != "" {
		return e.Operation + ": " + e.Message
	}
	return e.Message
}

// OwnCode is the code that the operation itself has chosen, of an extension that is served by rigline; empty if there is none.
func (e *Error) OwnCode() string { return said(e.Data, "rigline/code") }

// said is what rigline's own servers say of a failure in its data.
func said(data json.RawMessage, name string) (text string) {
	if len(data) > 0 && data[0] == '{' {
		_ = json.Unmarshal(membersOf(data).get(name), &text)
	}
	return text
}

// Unwrap gives the cause, for errors.Is.
func (e *Error) Unwrap() error { return e.Cause }

// Log is a line that the extension logged.
type Log struct {
	// Level is debug, info, warn or error.
	Level   string
	Message string
	// Data is JSON; nil if there is none.
	Data json.RawMessage
}

// Output is one output of a call.
type Output struct{ Name, Text string }

// Result is what an operation answered. Of a failed call it comes beside the error.
type Result struct {
	Message string
	// Outputs are in their order. Values that are not strings are there as their JSON text, exactly as it came.
	Outputs []Output
	Logs    []Log
}

// Output is the text of the output of that name; empty if there is none.
func (r *Result) Output(name string) string {
	for _, output := range r.Outputs {
		if output.Name == name {
			return output.Text
		}
	}
	return ""
}

// Number is the output of that name as a number, as evals read it: JSON's, and what instruments write, such as +3.30E+00 and 007. The error
// says what is none, such as inf, 0x10 and 1_000. A float may have less digits than the output: see Within.
func (r *Result) Number(name string) (float64, error) {
	text := r.Output(name)
	if _, is := decimalOf(text); !is {
		shown := strconv.Quote(text)
		if len(shown) > 80 {
			shown = shown[:80] + "..."
		}
		return 0, &Error{Kind: Invalid, Message: fmt.Sprintf("the output %s is not a number: %s", name, shown)}
	}
	// What is beyond floats is infinite, and no error: the text is a number.
	number, _ := strconv.ParseFloat(strings.Trim(text, blank), 64)
	return number, nil
}

// Within says whether a text is a number from low to high, its limits included, with all its digits. An empty limit is none. What is no
// number is within no limits; a limit that is none is an error.
func Within(text, low, high string) (bool, error) {
	found, is := decimalOf(text)
	for _, limit := range []struct {
		name, text string
		wrong      int
	}{{"low", low, -1}, {"high", high, 1}} {
		if limit.text == "" {
			continue
		}
		bound, isNumber := decimalOf(limit.text)
		if !isNumber {
			return false, &Error{Kind: BadArguments, Message: fmt.Sprintf("%s must be a number, not %q", limit.name, limit.text)}
		}
		is = is && found.order(bound) != limit.wrong
	}
	return is, nil
}

const (
	// digitLimit is the length of the longest number that is compared as one, in bytes.
	digitLimit = 10_000
	// blank is JSON's white space.
	blank = " \t\r\n"
)

var decimals = regexp.MustCompile(`^([+-]?)([0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE]([+-]?[0-9]{1,17}))?$`)

// decimal is a decimal number: its sign, its digits without zeros at their ends, and the power of ten that 0.DIGITS is multiplied by.
type decimal struct {
	sign   int
	digits string
	power  int64
}

// decimalOf is the number that a text is, if it is one.
func decimalOf(text string) (decimal, bool) {
	text = strings.Trim(text, blank)
	if len(text) > digitLimit {
		return decimal{}, false
	}
	found := decimals.FindStringSubmatch(text)
	if found == nil {
		return decimal{}, false
	}
	whole, fraction, _ := strings.Cut(found[2], ".")
	significant := strings.TrimLeft(whole+fraction, "0")
	digits := strings.TrimRight(significant, "0")
	if digits == "" {
		return decimal{}, true
	}
	exponent, _ := strconv.ParseInt(found[3], 10, 64)
	zeros := len(whole) + len(fraction) - len(significant)
	sign := 1
	if found[1] == "-" {
		sign = -1
	}
	return decimal{sign, digits, exponent + int64(len(whole)-zeros)}, true
}

// order is -1, 0 or 1, as a number is below another, equal to it or above.
func (d decimal) order(other decimal) int {
	switch {
	case d.sign != other.sign:
		if d.sign < other.sign {
			return -1
		}
		return 1
	case d.power != other.power:
		if d.power < other.power {
			return -d.sign
		}
		return d.sign
	}
	return d.sign * strings.Compare(d.digits, other.digits)
}

// Operation is an operation of an extension.
type Operation struct {
	Description string          `json:"description"`
	Params      json.RawMessage `json:"params"`
}

// Manifest is what an extension says about itself.
type Manifest struct {
	Name        string               `json:"name"`
	Version     string               `json:"version"`
	Description string               `json:"description"`
	Operations  map[string]Operation `json:"operations"`
}

// read reads a manifest, and says whether it is one. What is missing or odd in it is left empty.
func (m *Manifest) read(text json.RawMessage) bool {
	if len(text) == 0 || text[0] != '{' {
		return false
	}
	var odd *json.UnmarshalTypeError
	err := json.Unmarshal(text, m)
	return err == nil || errors.As(err, &odd)
}

// spelled returns the operation's own name: the one that is written, or else the one that differs from it only in - and _, since
// set-target is set_target in MCP. The extension says what is wrong with a name that it does not have.
func (m *Manifest) spelled(name string) (string, error) {
	if _, has := m.Operations[name]; has {
		return name, nil
	}
	dashed := func(text string) string { return strings.ReplaceAll(text, "_", "-") }
	var alike []string
	for known := range m.Operations {
		if dashed(known) == dashed(name) {
			alike = append(alike, known)
		}
	}
	sort.Strings(alike)
	switch len(alike) {
	case 0:
		return name, nil
	case 1:
		return alike[0], nil
	}
	why := fmt.Sprintf("%q may be %s; write one of them", name, strings.Join(alike, " or "))
	return "", &Error{Kind: UnknownOperation, Message: why, Operation: name}
}

// Options of a session; the zero value will do.
type Options struct {
	// Config is the extension's own settings.
	Config any
	// StartTimeout is how long the extension may take to start: 10 s.
	StartTimeout time.Duration
	// OnLog gets each log as it comes.
	OnLog func(Log)
}

// CallOptions are a call's surroundings; the zero value will do.
type CallOptions struct {
	// Timeout is sent to the extension. The default is the time until the context's deadline, or else
	// DefaultTimeout.
	Timeout time.Duration
	// Phase is setup, verify or cleanup.
	Phase   string
	Env     map[string]string
	Workdir string
}

// Rig is a session with an extension. Its methods may be called from several goroutines; calls take turns.
type Rig struct {
	Manifest Manifest

	stream  io.ReadWriteCloser
	onLog   func(Log)
	turn    chan struct{}
	closing sync.Once

	mu      sync.Mutex
	first   uint32
	next    uint32
	pending map[uint32]*call
	lost    *Error
	ended   chan struct{}
}

type call struct {
	isExecute bool
	answer    chan answer
	logs      []Log
	// size has the bytes of the logs, and dropped how many were too many.
	size    int
	dropped int
}

// log keeps a log, if there is room for it.
func (c *call) log(log Log) {
	size := len(log.Message) + len(log.Data)
	if len(c.logs) >= mostLogs || c.size+size > mostLogText {
		c.dropped++
		return
	}
	c.logs = append(c.logs, log)
	c.size += size
}

// allLogs gives the logs that were kept. If some were dropped, the last one says how many.
func (c *call) allLogs() []Log {
	if c.dropped == 0 {
		return c.logs
	}
	text := fmt.Sprintf("%d further log lines were dropped, since there were too many", c.dropped)
	return append(c.logs, Log{Level: "warn", Message: text})
}

type answer struct {
	kind   Kind // empty for a success
	text   string
	code   *int
	data   json.RawMessage
	result json.RawMessage
	Result
}

const targets = "sim, serial:PORT, serial:auto, tcp:HOST:PORT, exec:PROGRAM ARGS, replay:DIR, or the path of a program"

// Connect opens a session with a target of the command rigline: sim, serial:PORT, serial:auto, tcp:HOST:PORT, exec:PROGRAM ARGS,
// replay:DIR or the path of a program. For sim, serial:…, replay:… and tcp:… with options it starts the command, which is found in
// PATH or named by RIGLINE_BINARY. Start opens a session with a program and its arguments.
func Connect(ctx context.Context, target string, options *Options) (*Rig, error) {
	target = strings.TrimSpace(target)
	wrong := func(why string) error {
		return &Error{Kind: ConnectFailed, Message: fmt.Sprintf("%q %s; known targets: %s", target, why, targets)}
	}
	kind, rest, hasKind := strings.Cut(target, ":")
	_, fileError := os.Stat(target)
	switch {
	case target == "":
		return nil, wrong("is not a target")
	case target == "sim":
		return startOwn(ctx, options, target, "rig")
	case hasKind && kind == "exec":
		words, ok := splitWords(rest)
		if !ok {
			return nil, wrong("has a quote that does not end")
		}
		if len(words) == 0 || words[0] == "" {
			return nil, wrong("names no program")
		}
		return Start(ctx, options, words[0], words[1:]...)
	case hasKind && (kind == "serial" || kind == "tcp" || kind == "replay") && (rest == "" || rest[0] == '?'):
		return nil, wrong("names nothing after its colon")
	case hasKind && kind == "tcp" && !strings.Contains(rest, "?"):
		connection, err := (&net.Dialer{}).DialContext(ctx, "tcp", strings.TrimPrefix(rest, "//"))
		if err != nil {
			return nil, &Error{Kind: ConnectFailed, Message: target + " cannot be reached: " + err.Error(), Cause: err}
		}
		return Open(ctx, connection, options)
	case hasKind && (kind == "serial" || kind == "tcp" || kind == "replay"):
		// Without --wait, the bridge would wait for an absent device for longer than the session's start may take.
		return startOwn(ctx, options, target, "bridge", "--wait", "1ms", "--line-limit", "8388608", "--", target)
	case hasKind && (kind == "http" || kind == "https"):
		return nil, wrong("is HTTP, which this client does not support")
	// A single letter is a drive.
	case hasKind && len(kind) > 1 && !strings.ContainsAny(kind, "/\\ ") && fileError != nil:
		return nil, wrong("is not a target: there is no kind " + kind)
	}
	if _, err := exec.LookPath(target); err != nil {
		return nil, &Error{Kind: ConnectFailed, Message: fmt.Sprintf("%s cannot be started: %v; known targets: %s", target, err, targets), Cause: err}
	}
	return Start(ctx, options, target)
}

// startOwn starts the command rigline.
func startOwn(ctx context.Context, options *Options, target string, args ...string) (*Rig, error) {
	binary := os.Getenv("RIGLINE_BINARY")
	if binary == "" {
		binary = "rigline"
	}
	if _, err := exec.LookPath(binary); err != nil {
		why := "the command `rigline` is not in PATH; install it as the README of rigline says (`cargo install`, or `pip install` of the wheel), or name it in RIGLINE_BINARY"
		if binary != "rigline" {
			why = "RIGLINE_BINARY names " + binary + ", which is not there"
		}
		return nil, &Error{Kind: ConnectFailed, Message: fmt.Sprintf("%q: %s", target, why), Cause: err}
	}
	return Start(ctx, options, binary, args...)
}

// splitWords returns the words of a command line, with the quotes and backslashes of a POSIX shell, and whether all quotes end.
func splitWords(text string) ([]string, bool) {
	var found []string
	var word strings.Builder
	inWord := false
	for at := 0; at < len(text); at++ {
		switch char := text[at]; char {
		case '\'':
			end := strings.IndexByte(text[at+1:], '\'')
			if end < 0 {
				return nil, false
			}
			word.WriteString(text[at+1 : at+1+end])
			inWord = true
			at += end + 1
		case '"':
			inWord = true
			for at++; ; at++ {
				if at >= len(text) {
					return nil, false
				}
				if text[at] == '"' {
					break
				}
				if text[at] == '\\' && at+1 < len(text) && strings.IndexByte("\"\\$`\n", text[at+1]) >= 0 {
					at++
					if text[at] == '\n' {
						continue
					}
				}
				word.WriteByte(text[at])
			}
		case '\\':
			at++
			if at >= len(text) {
				return nil, false
			}
			if text[at] != '\n' {
				word.WriteByte(text[at])
				inWord = true
			}
		case ' ', '\t', '\n':
			if inWord {
				found = append(found, word.String())
			}
			word.Reset()
			inWord = false
		default:
			word.WriteByte(char)
			inWord = true
		}
	}
	if inWord {
		found = append(found, word.String())
	}
	return found, true
}

// Start opens a session with a program.
func Start(ctx context.Context, options *Options, program string, args ...string) (*Rig, error) {
	command := exec.Command(program, args...)
	child := &child{command: command, stderr: &tail{}, heard: make(chan struct{})}
	// Not a writer: Wait would wait until all who have the pipe have closed it, and a child of the program may never do so.
	stderr, err := command.StderrPipe()
	if err == nil {
		if child.WriteCloser, err = command.StdinPipe(); err == nil {
			if child.Reader, err = command.StdoutPipe(); err == nil {
				err = command.Start()
			}
		}
	}
	if err != nil {
		return nil, &Error{Kind: ConnectFailed, Message: program + " cannot be started: " + err.Error(), Cause: err}
	}
	go func() {
		_, _ = io.Copy(child.stderr, stderr)
		close(child.heard)
	}()
	return Open(ctx, child, options)
}

// Open opens a session over a stream, which Close closes.
func Open(ctx context.Context, stream io.ReadWriteCloser, options *Options) (*Rig, error) {
	if options == nil {
		options = &Options{}
	}
	var seed [4]byte
	if _, err := rand.Read(seed[:]); err != nil {
		return nil, err
	}
	// A late reply to an earlier client must match no call of this one.
	base := binary.LittleEndian.Uint32(seed[:])&0x3fffffff + 1
	rig := &Rig{
		stream: stream, onLog: options.OnLog, turn: make(chan struct{}, 1),
		first: base, next: base, pending: map[uint32]*call{}, ended: make(chan struct{}),
	}
	go rig.read()
	params := map[string]any{"protocolVersion": version}
	if options.Config != nil {
		params["config"] = options.Config
	}
	start := options.StartTimeout
	if start <= 0 {
		start = 10 * time.Second
	}
	ctx, cancel := context.WithTimeout(ctx, start)
	defer cancel()
	got, err := rig.ask(ctx, "initialize", params)
	if err == nil && got.kind != "" {
		err = &Error{Kind: got.kind, Message: got.text, Code: got.code, Data: got.data}
	}
	if err == nil && !rig.Manifest.read(got.result) {
		err = &Error{Kind: Invalid, Message: "the manifest is not an object"}
	}
	if err != nil {
		rig.Close()
		return nil, err
	}
	return rig, nil
}

// Call calls an operation. args is anything that encoding/json writes as an object; nil for none. The error is an *Error; of kind
// Failed the result comes beside it.
func (r *Rig) Call(ctx context.Context, operation string, args any, options *CallOptions) (*Result, error) {
	if options == nil {
		options = &CallOptions{}
	}
	select {
	case r.turn <- struct{}{}:
		defer func() { <-r.turn }()
	case <-ctx.Done():
		return nil, &Error{Kind: Cancelled, Message: "the call was cancelled before its turn", Operation: operation, Cause: ctx.Err()}
	}
	timeout := options.Timeout
	if timeout <= 0 {
		timeout = DefaultTimeout
		if deadline, has := ctx.Deadline(); has {
			timeout = time.Until(deadline)
		}
	}
	if timeout <= 0 {
		return nil, &Error{Kind: Timeout, Message: "the time was over before the call began", Operation: operation, Cause: ctx.Err()}
	}
	if args == nil {
		args = struct{}{}
	}
	named, err := r.Manifest.spelled(operation)
	if err != nil {
		return nil, err
	}
	operation = named
	workdir := options.Workdir
	if workdir == "" {
		workdir, _ = os.Getwd()
	}
	callContext := map[string]any{"workdir": workdir, "phase": options.Phase, "timeout": timeout.String()}
	if len(options.Env) > 0 {
		callContext["env"] = options.Env
	}
	ctx, cancel := context.WithTimeout(ctx, timeout+grace)
	defer cancel()
	began := time.Now()
	got, err := r.ask(ctx, "execute", map[string]any{"operation": operation, "args": args, "context": callContext})
	took := time.Since(began)
	if err != nil {
		var known *Error
		if errors.As(err, &known) {
			own := *known
			own.Operation = operation
			return nil, &own
		}
		return nil, err
	}
	// Only the extension's own timeout error counts after the limit: it was on its way.
	if took > timeout && got.kind != Timeout {
		text := fmt.Sprintf("the answer came after %v, beyond the time limit of %v", took.Round(time.Millisecond), timeout)
		if said := strings.TrimSpace(got.text + got.Result.Message); said != "" {
			text += "; it said: " + said
		}
		return nil, &Error{Kind: Timeout, Message: text, Operation: operation}
	}
	if got.kind == "" {
		return &got.Result, nil
	}
	failure := &Error{Kind: got.kind, Message: got.text, Operation: operation, Code: got.code, Data: got.data}
	if got.kind == Failed {
		return &got.Result, failure
	}
	return nil, failure
}

// Close ends the session; outputs are switched off. Closing again does nothing.
func (r *Rig) Close() error {
	r.mu.Lock()
	isOut := len(r.pending) > 0
	r.mu.Unlock()
	r.end(&Error{Kind: Closed, Message: "the rig was closed"})
	r.cut(isOut)
	return nil
}

// Shutdown ends the session, and leaves the hardware as it is.
func (r *Rig) Shutdown(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	_, err := r.ask(ctx, "shutdown", struct{}{})
	r.Close()
	return err
}

func (r *Rig) ask(ctx context.Context, method string, params any) (answer, error) {
	r.mu.Lock()
	if r.lost != nil {
		defer r.mu.Unlock()
		return answer{}, r.lost
	}
	id := r.next
	r.next++
	waiting := &call{isExecute: method == "execute", answer: make(chan answer, 1)}
	r.pending[id] = waiting
	r.mu.Unlock()
	line, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": id, "method": method, "params": params})
	if err != nil {
		r.forget(id)
		return answer{}, &Error{Kind: BadArguments, Message: err.Error(), Cause: err}
	}
	// What is written to a peer that does not read must not outlast the context.
	go func() {
		if _, err := r.stream.Write(append(line, '\n')); err != nil && r.stillWaits(id) {
			// The reader sees the end too, and knows why; it may have an answer yet.
			time.AfterFunc(time.Second, func() { r.end(&Error{Kind: Lost, Message: err.Error(), Cause: err}) })
		}
	}()
	select {
	case got := <-waiting.answer:
		return got, nil
	case <-r.ended:
		// The answer may have come first.
		select {
		case got := <-waiting.answer:
			return got, nil
		default:
			return answer{}, r.lost
		}
	case <-ctx.Done():
		// The answer may have come first.
		select {
		case got := <-waiting.answer:
			return got, nil
		default:
		}
		kind, text := Cancelled, "the call was cancelled"
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			kind, text = Timeout, "no answer in time"
		}
		cut := &Error{Kind: kind, Message: text, Cause: ctx.Err()}
		r.end(cut)
		r.cut(true)
		return answer{}, cut
	}
}

// cut closes the stream; a call that is out must not go on.
func (r *Rig) cut(isOut bool) {
	r.closing.Do(func() {
		if program, is := r.stream.(*child); is && isOut {
			program.terminate()
		}
		r.stream.Close()
	})
}

func (r *Rig) forget(id uint32) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.pending, id)
}

func (r *Rig) stillWaits(id uint32) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.pending[id] != nil
}

func (r *Rig) end(why *Error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.lost == nil {
		r.lost = why
		close(r.ended)
	}
}

func (r *Rig) read() {
	reader := bufio.NewReaderSize(r.stream, 64<<10)
	var line []byte
	for {
		part, err := reader.ReadSlice('\n')
		line = append(line, part...)
		if len(line) > LineLimit {
			r.end(&Error{Kind: Invalid, Message: fmt.Sprintf("a line is longer than %d bytes", LineLimit)})
			r.closing.Do(func() { r.stream.Close() })
			return
		}
		if err == bufio.ErrBufferFull {
			continue
		}
		r.receive(line)
		line = line[:0]
		if err != nil {
			why := "the connection was closed"
			if program, is := r.stream.(*child); is {
				why = program.howItEnded()
			} else if err != io.EOF {
				why = err.Error()
			}
			r.end(&Error{Kind: Lost, Message: why})
			return
		}
	}
}

// receive handles a line, which may have several messages.
func (r *Rig) receive(line []byte) {
	text := trim(bytes.TrimPrefix(trim(line), []byte("\xef\xbb\xbf")))
	for len(text) > 0 {
		if utf8.Valid(text) && json.Valid(text) {
			r.classify(text)
			return
		}
		text = trim(r.recover(text))
	}
}

// recover takes a line that is not one JSON text, and returns what is left of it.
func (r *Rig) recover(text []byte) []byte {
	damaged := text
	for place, at := 0, 0; place < candidates; at++ {
		next := bytes.IndexByte(text[at:], '{')
		if next < 0 {
			break
		}
		at += next
		if !bytes.HasPrefix(trim(text[at+1:]), []byte(`"`)) {
			continue
		}
		place++
		end := endOfObject(text[at:])
		if end < 0 {
			if damaged[0] != '{' && bytes.Contains(text[at:], []byte(`"jsonrpc"`)) {
				damaged = text[at:]
			}
			continue
		}
		message, rest := text[at:at+end], trim(text[at+end:])
		// It is part of something larger.
		if at > 0 && len(rest) > 0 && bytes.IndexByte([]byte(`}],"`), rest[0]) >= 0 {
			continue
		}
		if !utf8.Valid(message) || !json.Valid(message) {
			if damaged[0] != '{' {
				damaged = text[at:]
			}
			continue
		}
		if envelope := membersOf(message); at > 0 && string(envelope.get("jsonrpc")) != `"2.0"` {
			continue
		}
		r.classify(message)
		return rest
	}
	r.damaged(damaged)
	return nil
}

// damaged ends the call that a damaged reply names.
func (r *Rig) damaged(text []byte) {
	id, hasID := uint32(0), false
	isMessage := text[0] == '{'
	topLevel(text, func(key string, value []byte) {
		// A damaged notification or request fails no call.
		isMessage = isMessage && key != "method"
		if key == "id" && !hasID {
			digits := value
			for n, b := range value {
				if b < '0' || b > '9' {
					digits = value[:n]
					break
				}
			}
			if number, err := strconv.ParseUint(string(digits), 10, 32); err == nil {
				id, hasID = uint32(number), true
			}
		}
	})
	if isMessage && hasID {
		r.finish(id, answer{kind: Invalid, text: "the answer is not JSON"})
	}
}

func (r *Rig) classify(text []byte) {
	envelope := membersOf(text)
	versioned := string(envelope.get("jsonrpc")) == `"2.0"`
	if method := envelope.get("method"); method != nil {
		r.fromPeer(envelope, method, versioned)
		return
	}
	id, hasID := idOf(envelope.get("id"))
	if failure := envelope.get("error"); failure != nil && string(failure) != "null" {
		got := ofError(failure)
		raw := envelope.get("id")
		if hasID && r.finish(id, got) {
			return
		}
		// The peer could not read a request (JSON-RPC 2.0, section 5): it must be the one that is out.
		if (raw == nil || string(raw) == "null") && (versioned || got.code != nil) {
			r.finishOnly(got)
		}
		return
	}
	if !hasID {
		return
	}
	result := envelope.get("result")
	if result == nil {
		r.finish(id, answer{kind: Invalid, text: "the answer has neither a result nor an error"})
		return
	}
	r.finish(id, answer{result: append(json.RawMessage(nil), result...)})
}

func (r *Rig) fromPeer(envelope members, method []byte, versioned bool) {
	var name string
	if json.Unmarshal(method, &name) != nil {
		return
	}
	params := envelope.get("params")
	isObject := len(params) > 0 && params[0] == '{'
	if id := envelope.get("id"); id != nil && versioned {
		number, is := idOf(id)
		r.mu.Lock()
		isOwn := is && number >= r.first && number < r.next
		r.mu.Unlock()
		if isOwn && (name == "initialize" || name == "execute" || name == "shutdown") {
			return
		}
		if len(name) > 64 {
			name = name[:64]
		}
		refusal := map[string]any{"code": -32601, "message": "Unknown method: " + name}
		line, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": json.RawMessage(id), "error": refusal})
		if err == nil {
			r.stream.Write(append(line, '\n'))
		}
		return
	}
	if name != "log" || !(versioned || isObject) {
		return
	}
	log := Log{Level: "info", Message: plain(params)}
	if isObject {
		parts := membersOf(params)
		var level string
		_ = json.Unmarshal(parts.alike("level"), &level)
		log = Log{Level: levelOf(level), Message: plain(parts.alike("message"))}
		if data := parts.alike("data"); data != nil && string(data) != "null" {
			log.Data = append(json.RawMessage(nil), data...)
		}
	}
	r.mu.Lock()
	for _, waiting := range r.pending {
		waiting.log(log)
	}
	r.mu.Unlock()
	if r.onLog != nil {
		r.onLog(log)
	}
}

// finish gives a call its answer; whether there is such a call.
func (r *Rig) finish(id uint32, got answer) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	waiting := r.pending[id]
	if waiting == nil {
		return false
	}
	delete(r.pending, id)
	if got.kind == "" && waiting.isExecute {
		got = ofResult(got.result)
	}
	got.Logs = waiting.allLogs()
	waiting.answer <- got
	return true
}

func (r *Rig) finishOnly(got answer) {
	r.mu.Lock()
	only, id := len(r.pending) == 1, uint32(0)
	for id = range r.pending {
	}
	r.mu.Unlock()
	if only {
		r.finish(id, got)
	}
}

func ofError(failure []byte) answer {
	got := answer{kind: Refused}
	code, message := failure, ""
	if failure[0] == '{' {
		parts := membersOf(failure)
		code, message, got.data = parts.get("code"), plain(parts.alike("message")), parts.get("data")
	}
	if number, err := strconv.ParseInt(strings.Trim(string(code), `"`), 10, 32); err == nil {
		value := int(number)
		got.code = &value
		kinds := map[int]Kind{
			-32601: UnknownOperation, -32602: BadArguments, -32603: Internal,
			-32000: Unreachable, -32001: Timeout, -32002: Requirement,
		}
		if kind, known := kinds[value]; known {
			got.kind = kind
		}
		switch said(got.data, "rigline/kind") {
		case "forbidden":
			got.kind = Forbidden
		case "too_large":
			got.kind = TooLarge
		}
	}
	for _, text := range []string{message, plain(got.data), plain(failure)} {
		if text != "" {
			got.text = text
			break
		}
	}
	return got
}

func ofResult(result []byte) answer {
	if len(result) == 0 || result[0] != '{' {
		return answer{kind: Invalid, text: "the result is not an object"}
	}
	parts := membersOf(result)
	got := answer{Result: Result{Message: plain(parts.alike("message"))}}
	if outputs := parts.alike("outputs"); len(outputs) > 0 && outputs[0] == '{' {
		for _, member := range membersOf(outputs) {
			got.Outputs = append(got.Outputs, Output{member.name, plain(member.value)})
		}
	}
	switch string(parts.alike("success")) {
	case "true":
		return got
	case "false":
	default:
		return answer{kind: Invalid, text: "the result's success is not a boolean"}
	}
	got.kind, got.data = Failed, parts.alike("data")
	for _, text := range []string{plain(parts.alike("error")), got.Message, "the operation failed without a reason"} {
		if text != "" {
			got.text = text
			break
		}
	}
	return got
}

func levelOf(name string) string {
	switch strings.ToLower(name) {
	case "debug", "trace", "verbose":
		return "debug"
	case "warn", "warning":
		return "warn"
	case "error", "err", "fatal", "critical", "panic":
		return "error"
	}
	return "info"
}

// idOf is the value of an id, in whatever spelling.
func idOf(raw []byte) (uint32, bool) {
	text := strings.Trim(string(raw), `"`)
	if number, err := strconv.ParseUint(text, 10, 32); err == nil {
		return uint32(number), true
	}
	if number, err := strconv.ParseFloat(string(raw), 64); err == nil && number == float64(uint32(number)) {
		return uint32(number), true
	}
	return 0, false
}

// plain is a value as a person reads it: a string without its quotes, null as nothing, others as their JSON text.
func plain(raw []byte) string {
	if len(raw) == 0 || string(raw) == "null" {
		return ""
	}
	var text string
	if raw[0] == '"' && json.Unmarshal(raw, &text) == nil {
		return text
	}
	return string(raw)
}

// members are those of an object, in their order, with values as they came.
type members []struct {
	name  string
	value []byte
}

func membersOf(object []byte) members {
	decoder := json.NewDecoder(bytes.NewReader(object))
	if token, err := decoder.Token(); err != nil || token != json.Delim('{') {
		return nil
	}
	var found members
	for decoder.More() {
		var value json.RawMessage
		name, err := decoder.Token()
		if err != nil || decoder.Decode(&value) != nil {
			return found
		}
		found = append(found, struct {
			name  string
			value []byte
		}{name.(string), value})
	}
	return found
}

// get is the member of that name; the last one if there are several.
func (m members) get(name string) []byte {
	for at := len(m) - 1; at >= 0; at-- {
		if m[at].name == name {
			return m[at].value
		}
	}
	return nil
}

// alike is the member of that name, or else one whose name differs in case only.
func (m members) alike(name string) []byte {
	if exact := m.get(name); exact != nil {
		return exact
	}
	for at := len(m) - 1; at >= 0; at-- {
		if strings.ToLower(m[at].name) == name {
			return m[at].value
		}
	}
	return nil
}

// endOfString is where the string that begins at the quote `at` ends; -1 if it does not.
func endOfString(text []byte, at int) int {
	for at++; at < len(text); at++ {
		switch text[at] {
		case '\\':
			at++
		case '"':
			return at + 1
		}
	}
	return -1
}

// endOfObject is where the object that a text begins with ends; -1 if it does not.
func endOfObject(text []byte) int {
	for at, depth := 0, 0; at < len(text); at++ {
		switch text[at] {
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				return at + 1
			}
		case '"':
			end := endOfString(text, at)
			if end < 0 {
				return -1
			}
			at = end - 1
		}
	}
	return -1
}

// topLevel visits the names of a damaged object's members, and the text after each colon.
func topLevel(text []byte, visit func(key string, value []byte)) {
	for at, depth := 0, 0; at < len(text); at++ {
		switch text[at] {
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth <= 0 {
				return
			}
		case '"':
			end := endOfString(text, at)
			if end < 0 {
				return
			}
			if rest := trim(text[end:]); depth == 1 && bytes.HasPrefix(rest, []byte(":")) {
				visit(string(text[at+1:end-1]), trim(rest[1:]))
			}
			at = end - 1
		}
	}
}

func trim(text []byte) []byte {
	return bytes.TrimFunc(text, func(char rune) bool { return char == 0 || (char < 128 && unicode.IsSpace(char)) })
}

// child is a program's standard input and output.
type child struct {
	io.WriteCloser
	io.Reader
	command *exec.Cmd
	stderr  *tail
	// heard is closed at the end of its standard error.
	heard chan struct{}
	once  sync.Once
	done  chan struct{}
}

// wait waits for the program's end, once its output has been read. It closes what is left of its pipes.
func (c *child) wait() chan struct{} {
	c.once.Do(func() {
		c.done = make(chan struct{})
		go func() {
			_ = c.command.Wait()
			close(c.done)
		}()
	})
	return c.done
}

// terminate asks the program to end at once, whatever it does. SIGINT is ignored by what a job in the background has started; Windows has neither.
func (c *child) terminate() { _ = c.command.Process.Signal(syscall.SIGTERM) }

// Close closes the program's input, which a rig takes for a loss, and waits for its end.
func (c *child) Close() error {
	_ = c.WriteCloser.Close()
	done := c.wait()
	for _, step := range []func(){c.terminate, func() { _ = c.command.Process.Kill() }} {
		select {
		case <-done:
			return nil
		case <-time.After(patience):
			step()
		}
	}
	<-done
	return nil
}

func (c *child) howItEnded() string {
	// Waiting for the program closes the pipe, so that what it wrote at its end is read first.
	select {
	case <-c.heard:
	case <-time.After(time.Second / 5):
	}
	select {
	case <-c.wait():
	case <-time.After(time.Second):
		return c.command.Path + " closed its output"
	}
	text := c.command.Path + " has ended: " + c.command.ProcessState.String()
	if end := strings.TrimSpace(c.stderr.String()); end != "" {
		text += "; its standard error ends with:\n" + end
	}
	return text
}

// tail keeps the end of what is written to it.
type tail struct {
	mu   sync.Mutex
	text []byte
}

func (t *tail) Write(data []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, data...)
	if len(t.text) > 4000 {
		t.text = append([]byte(nil), t.text[len(t.text)-4000:]...)
	}
	return len(data), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.text)
}
