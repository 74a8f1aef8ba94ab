package transcript

import (
	"fmt"
	"strings"
	"testing"
)

func TestFaults(t *testing.T) {
	for _, tt := range []struct {
		line string
		bad  bool
	}{
		{`time=2026-01-01T00:00:00Z level=INFO msg="restored pods from the journal" pods=3`, false},
		{`time=2026-01-01T00:00:00Z level=WARN msg="drop torn tail of journal" journal=/j/journal offset=12 bytes=4`, false},
		{`time=2026-01-01T00:00:00Z level=WARN msg="pod step failed" failures=1`, false},
		{`time=2026-01-01T00:00:00Z level=WARN msg="journal is not sealed" remedy="set journalKeyTPMFile"`, false},
		{`time=2026-01-01T00:00:00Z level=WARN msg="skip damaged part of journal" offset=12 bytes=4`, true},
		{`time=2026-01-01T00:00:00Z level=WARN msg="cannot use value in pod journal" key=pod/x`, true},
		{`time=2026-01-01T00:00:00Z level=WARN msg="cannot restore pod from journal" podUID=x`, true},
		{`time=2026-01-01T00:00:00Z level=ERROR msg="journal of the cluster's pods cannot be used"`, true},
		{`time=2026-01-01T00:00:00Z level=WARN msg=event reason=FailedJournal`, true},
		{`~ # panic: runtime error: index out of range [3] with length 3`, true},
		{`fatal error: all goroutines are asleep - deadlock!`, true},
		{`goroutine 17 [running]:`, true},
		{`supervise: tinylet ended with status 2 after 3 s, restarts in 1 s`, true},
		{`[   12.3] EXT4-fs error (device vda): ext4_lookup:1855: inode #12: bad entry`, true},
		{`[   12.3] EXT4-fs (vda): error count since last fsck: 1`, true},
		{`[   12.3] EXT4-fs (vda): recovery complete`, false},
		{`[   12.3] Kernel panic - not syncing: Attempted to kill init!`, true},
		{`[   12.3] Internal error: Oops: 0000000096000004 [#1] SMP`, true},
	} {
		var s Transcript
		fmt.Fprintf(&s, "before\r\n%s\r\nafter", tt.line)
		if got := s.Faults(); (len(got) > 0) != tt.bad || tt.bad && got[0] != tt.line {
			t.Errorf("faults of %q: %q, want it to be one: %v", tt.line, got, tt.bad)
		}
	}
}

func TestCrash(t *testing.T) {
	const arm64 = "before\r\n" +
		"[   27.322534] Unable to handle kernel NULL pointer dereference at virtual address 0000000000000008\r\n" +
		"[   27.334983] Internal error: Oops: 0000000096000007 [#1] SMP\r\n" +
		"[   27.341438] CPU: 0 UID: 0 PID: 264 Comm: tinylet Not tainted 6.12\r\n" +
		"[   27.343464] pc : list_lru_add+0xe0/0x198\r\n" +
		"[   27.343900] lr : list_lru_add+0x164/0x198\r\n" +
		"[   27.358358] Kernel panic - not syncing: Oops: Fatal exception\r\n"
	var s Transcript
	fmt.Fprint(&s, arm64)
	if got := s.Crash(); got != "list_lru_add+0xe0/0x198" || len(s.Faults()) != 0 {
		t.Errorf("crashed in %q, faults %q", got, s.Faults())
	}
	for _, text := range []string{
		arm64 + "panic: runtime error\r\n",
		strings.Replace(arm64, "[   27.343900]", "panic: runtime error\r\n[   27.343900]", 1), // between its lines
	} {
		var s Transcript
		fmt.Fprint(&s, text)
		if s.Crash() == "" || len(s.Faults()) != 1 {
			t.Errorf("faults beside a crash: %q", s.Faults())
		}
	}
	for _, line := range []string{
		"[   12.3] Kernel panic - not syncing: Attempted to kill init! exitcode=0x00000100",
		"[   12.3] Kernel panic - not syncing: VFS: Unable to mount root fs",
		"[   12.3] Internal error: Oops: 0000000096000004 [#1] SMP",
	} {
		var s Transcript
		fmt.Fprintln(&s, line)
		if s.Crash() != "" || len(s.Faults()) != 1 {
			t.Errorf("%q: crashed in %q, faults %q", line, s.Crash(), s.Faults())
		}
	}
}

func TestTranscript(t *testing.T) {
	var s Transcript
	fmt.Fprint(&s, "a\r\nlevel=WARN msg=\"drop torn tail ")
	fmt.Fprint(&s, "of journal\" x=1\r\nend")
	if s.Torn() != 1 || s.Tail(3) != "end" || s.Tail(1000) != s.String() {
		t.Errorf("torn %d, tail %q of %q", s.Torn(), s.Tail(3), s.String())
	}
}
