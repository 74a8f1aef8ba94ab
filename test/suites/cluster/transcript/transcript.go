// Package transcript keeps all that a board says on its console in one boot,
// kernel and agent alike, and finds in it what must never be said, however
// often the power went.
package transcript

import (
	"regexp"
	"strings"
	"sync"
)

// Transcript is what a board said. It is an io.Writer; its methods may be
// called concurrently.
type Transcript struct {
	mu   sync.Mutex
	text strings.Builder
}

// Write adds what the board says.
func (t *Transcript) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.text.Write(p)
}

// String answers all of it, with ends of lines as in a file.
func (t *Transcript) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.ReplaceAll(t.text.String(), "\r\n", "\n")
}

// bad matches what neither kernel nor agent may print. The agent's supervisor
// prints "supervise" when the agent has ended by itself.
var bad = regexp.MustCompile(`panic: |fatal error: |goroutine \d+ \[|Kernel panic|EXT4-fs error|EXT4-fs \([^)]*\): error|I/O error|Internal error: |BUG: |supervise: \S+ ended with`)

// journal is a complaint of the agent about its journal.
var journal = regexp.MustCompile(`level=(WARN|ERROR) .*(?i:journal)`)

// torn is what a power cut in the middle of a write leaves, and all that it
// may leave: it was never acknowledged.
const torn = `msg="drop torn tail of journal"`

// plain is what the agent says of a journal without a key, as the boards' is.
const plain = `msg="journal is not sealed"`

// oops matches an oops and the panic after it, as the kernel prints them on arm64,
// with the function that it was in. No program can cause one.
var oops = regexp.MustCompile(`(?s)Unable to handle kernel.*?Internal error: Oops: .*?\bpc : ([^\n]*).*?Kernel panic - not syncing: Oops: `)

// kernels is how a line of the kernel begins.
var kernels = regexp.MustCompile(`(?m)^\[ *\d+\.\d+\].*$`)

// Crash is where the kernel crashed by a fault of its own, or "".
func (t *Transcript) Crash() string {
	if m := oops.FindStringSubmatch(t.String()); m != nil {
		return strings.TrimSpace(m[1])
	}
	return ""
}

// Faults are the lines that must not be there. What the kernel says of a Crash
// is none.
func (t *Transcript) Faults() (faults []string) {
	for line := range strings.Lines(oops.ReplaceAllStringFunc(t.String(), withoutKernel)) {
		line = strings.TrimSpace(line)
		if bad.MatchString(line) || journal.MatchString(line) && !strings.Contains(line, torn) && !strings.Contains(line, plain) {
			faults = append(faults, line)
		}
	}
	return faults
}

// withoutKernel is a text without the kernel's lines. The first one may have
// lost its beginning, and the last one has no end.
func withoutKernel(text string) string {
	_, rest, _ := strings.Cut(text, "\n")
	return kernels.ReplaceAllString(rest, "")
}

// Torn is how many torn tails the agent has cut off its journal.
func (t *Transcript) Torn() int { return strings.Count(t.String(), torn) }

// Tail answers the last bytes of it, at most so many.
func (t *Transcript) Tail(bytes int) string {
	text := t.String()
	return text[max(0, len(text)-bytes):]
}
