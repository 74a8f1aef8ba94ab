package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestFollow(t *testing.T) {
	for _, tc := range []struct {
		name   string
		events []string
		// printed is what comes at once, verdict what comes at the end.
		printed, verdict string
	}{
		{name: "nothing"},
		{
			name: "all pass",
			events: []string{
				`{"Action":"start","Package":"p"}`,
				`{"Action":"run","Package":"p","Test":"TestA"}`,
				`{"Action":"output","Package":"p","Test":"TestA","Output":"=== RUN   TestA\n"}`,
				`{"Action":"output","Package":"p","Test":"TestA","Output":"    a_test.go:1: well\n"}`,
				`{"Action":"pass","Package":"p","Test":"TestA","Elapsed":1}`,
				`{"Action":"output","Package":"p","Output":"ok  \tp\t1s\n"}`,
				`{"Action":"pass","Package":"p"}`,
			},
			printed: "x: === RUN   TestA\nx:     a_test.go:1: well\nx: ok  \tp\t1s\n",
		},
		{
			name: "a part of a test fails, another one and its package's last word are not told",
			events: []string{
				`{"Action":"output","Package":"p","Test":"TestA","Output":"=== RUN   TestA\n"}`,
				`{"Action":"output","Package":"p","Test":"TestA/b/c","Output":"=== RUN   TestA/b/c\n"}`,
				`{"Action":"output","Package":"p","Test":"TestA/b/c","Output":"    a_test.go:2: bad\n"}`,
				`{"Action":"output","Package":"p","Test":"TestA/b/c","Output":"    --- FAIL: TestA/b/c (1s)\n"}`,
				`{"Action":"fail","Package":"p","Test":"TestA/b/c"}`,
				`{"Action":"fail","Package":"p","Test":"TestA/b"}`,
				`{"Action":"output","Package":"p","Test":"TestA/d","Output":"    a_test.go:3: well\n"}`,
				`{"Action":"pass","Package":"p","Test":"TestA/d"}`,
				`{"Action":"output","Package":"p","Test":"TestA","Output":"--- FAIL: TestA (1s)\n"}`,
				`{"Action":"fail","Package":"p","Test":"TestA"}`,
				`{"Action":"output","Package":"p","Output":"FAIL\n"}`,
				`{"Action":"output","Package":"p","Output":"exit status 1\n"}`,
				`{"Action":"output","Package":"p","Output":"FAIL\tp\t1s\n"}`,
				`{"Action":"fail","Package":"p"}`,
			},
			printed: "x: === RUN   TestA\nx: === RUN   TestA/b/c\nx:     a_test.go:2: bad\nx:     --- FAIL: TestA/b/c (1s)\n" +
				"x:     a_test.go:3: well\nx: --- FAIL: TestA (1s)\nx: FAIL\nx: exit status 1\nx: FAIL\tp\t1s\n",
			verdict: "x: FAILED: p TestA/b/c\nx:     a_test.go:2: bad\n",
		},
		{
			name: "the test itself fails beside a part",
			events: []string{
				`{"Action":"fail","Package":"p","Test":"TestA/b"}`,
				`{"Action":"output","Package":"p","Test":"TestA","Output":"    a_test.go:4: also bad\n"}`,
				`{"Action":"fail","Package":"p","Test":"TestA"}`,
			},
			printed: "x:     a_test.go:4: also bad\n",
			verdict: "x: FAILED: p TestA/b\nx: FAILED: p TestA\nx:     a_test.go:4: also bad\nx: FAILED: p TestA/b\nx: FAILED: p TestA: a_test.go:4: also bad\n",
		},
		{
			name: "a package that is not built",
			events: []string{
				`{"ImportPath":"p [p.test]","Action":"build-output","Output":"# p\n"}`,
				`{"ImportPath":"p [p.test]","Action":"build-output","Output":"./a.go:1:1: no\n"}`,
				`{"ImportPath":"p [p.test]","Action":"build-fail"}`,
				`{"Action":"output","Package":"p","Output":"FAIL\tp [build failed]\n"}`,
				`{"Action":"fail","Package":"p","FailedBuild":"p [p.test]"}`,
			},
			printed: "x: # p\nx: ./a.go:1:1: no\nx: FAIL\tp [build failed]\n",
			verdict: "x: FAILED: p [p.test]\nx: # p\nx: ./a.go:1:1: no\nx: FAILED: p\nx: FAILED: p [p.test]\nx: FAILED: p\n",
		},
		{
			name: "a line in two events",
			events: []string{
				`{"Action":"output","Package":"p","Test":"TestA","Output":"    one"}`,
				`{"Action":"output","Package":"p","Test":"TestA","Output":" line\n"}`,
				`{"Action":"fail","Package":"p","Test":"TestA"}`,
			},
			printed: "x:     one line\n",
			verdict: "x: FAILED: p TestA\nx:     one line\n",
		},
		{
			name:    "no event: a word of go itself",
			events:  []string{`go: cannot find main module`, `{"Action":`},
			printed: "x: go: cannot find main module\nx: {\"Action\":\n",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var in strings.Builder
			for _, e := range tc.events {
				in.WriteString(e + "\n")
			}
			var out bytes.Buffer
			verdict, err := follow(strings.NewReader(in.String()), &out, "x: ")
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.printed, out.String()); diff != "" {
				t.Errorf("printed (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.verdict, verdict); diff != "" {
				t.Errorf("verdict (-want +got):\n%s", diff)
			}
		})
	}
}

func TestFollowLeavesOutTheMiddle(t *testing.T) {
	var in strings.Builder
	for i := range 2*most + 1 {
		fmt.Fprintf(&in, `{"Action":"output","Package":"p","Test":"TestA","Output":"%d\n"}`+"\n", i)
	}
	in.WriteString(`{"Action":"fail","Package":"p","Test":"TestA"}` + "\n")
	verdict, err := follow(strings.NewReader(in.String()), &bytes.Buffer{}, "")
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSuffix(verdict, "\n"), "\n")
	if want := most + 3; len(lines) != want {
		t.Fatalf("%d lines, want %d", len(lines), want)
	}
	for i, want := range map[int]string{0: "FAILED: p TestA", 1: "0", most / 2: "29", most/2 + 1: "    (61 lines left out)", most/2 + 2: "91", most + 1: "120", most + 2: "FAILED: p TestA"} {
		if lines[i] != want {
			t.Errorf("line %d is %q, want %q", i, lines[i], want)
		}
	}
}

// A failure between what a test has done and the logs of its parts is told.
func TestFollowTellsWhatTheTestSaid(t *testing.T) {
	var in strings.Builder
	say := func(text string) {
		fmt.Fprintf(&in, `{"Action":"output","Package":"p","Test":"TestA","Output":"%s\n"}`+"\n", text)
	}
	for i := range 100 {
		say(fmt.Sprintf("    a_test.go:1: turn %d", i))
	}
	say("    a_test.go:2: the failure")
	say("    node_test.go:3: the agent's log:")
	for i := range 200 {
		say(fmt.Sprintf("        log %d", i))
	}
	in.WriteString(`{"Action":"fail","Package":"p","Test":"TestA"}` + "\n")
	verdict, err := follow(strings.NewReader(in.String()), &bytes.Buffer{}, "")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(verdict, "the failure\n") || !strings.Contains(verdict, "turn 99\n") || strings.Contains(verdict, "turn 50\n") {
		t.Error(verdict)
	}
	if !strings.HasSuffix(verdict, "\nFAILED: p TestA: a_test.go:2: the failure\n") {
		t.Errorf("its last word: %s", verdict[strings.LastIndex(strings.TrimSpace(verdict), "\n"):])
	}
	if n := strings.Count(verdict, "\n"); n != 1+most+1+mostBetween+1 {
		t.Errorf("%d lines", n)
	}
}

// TestKeep: a run in which nothing failed leaves no file of another run.
func TestKeep(t *testing.T) {
	keep := filepath.Join(t.TempDir(), "failed")
	fail := `{"Action":"output","Package":"p","Test":"T","Output":"bad\n"}` + "\n" + `{"Action":"fail","Package":"p","Test":"T"}`
	if err := run(strings.NewReader(fail), &bytes.Buffer{}, "x", keep); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(keep)
	if want := "x: FAILED: p T\nx: bad\n"; err != nil || string(got) != want {
		t.Errorf("kept %q (%v), want %q", got, err, want)
	}
	if err := run(strings.NewReader(""), &bytes.Buffer{}, "x", keep); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(keep); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("after a run without failures: %v", err)
	}
}
