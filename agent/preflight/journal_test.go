package preflight

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tinylet/tinylet/agent/store/journal"
	"github.com/tinylet/tinylet/agent/store/journal/journaltest"
)

func TestJudgeJournal(t *testing.T) {
	for _, row := range []struct {
		name    string
		journal Journal
		want    Level // "" is no finding
		what    string
	}{
		{"a board alone", Journal{Setting: "auto"}, "", ""},
		{"joined, without a key", Journal{Joined: true, Setting: "auto"}, Warn, "will be stored unencrypted"},
		{"joined, a plain journal", Journal{Joined: true, Setting: "auto", Sealed: No}, Warn, "are stored unencrypted"},
		{"a plain journal, and a key since", Journal{Setting: "auto", Key: true, Sealed: No}, Warn, "are stored unencrypted"},
		{"joined, sealed", Journal{Joined: true, Setting: "auto", Key: true, Sealed: Yes}, OK, "is sealed"},
		{"joined, a key, no journal yet", Journal{Joined: true, Setting: "sealed", Key: true}, OK, "is sealed"},
		{"sealed, without a key", Journal{Joined: true, Setting: "sealed"}, Warn, "are not restored"},
		{"the key was taken out", Journal{Joined: true, Setting: "auto", Sealed: Yes}, Warn, "it is not used"},
		{"of another version", Journal{Joined: true, Setting: "auto", Format: "version 2"}, Fail, "another version of tinylet (version 2)"},
		{"a board alone, of another version", Journal{Setting: "auto", Format: "version 2"}, "", ""},
		{"off", Journal{Joined: true, Setting: "off"}, OK, "nothing"},
	} {
		f := healthy()
		f.Journal = row.journal
		found := checkJournal(&f)
		switch {
		case row.want == "":
			if len(found) > 0 {
				t.Errorf("%s: %+v", row.name, found)
			}
		case len(found) != 1 || found[0].Level != row.want || !strings.Contains(found[0].What, row.what) || (row.want != OK) != (found[0].Remedy != ""):
			t.Errorf("%s: %+v", row.name, found)
		}
	}
}

func TestCollectJournal(t *testing.T) {
	root := t.TempDir()
	collect := func() Tristate {
		t.Helper()
		return tree(root).journal(Journal{Dir: "/state/journal"}).Sealed
	}
	if got := collect(); got != Unknown {
		t.Errorf("no journal: %v", got)
	}
	dir := filepath.Join(root, "state", "journal")
	for key, want := range map[string]Tristate{"": No, strings.Repeat("k", 16) + strings.Repeat("l", 16): Yes} {
		c := journal.Config{Dir: dir, Log: slog.New(slog.DiscardHandler)}
		if key != "" {
			c.Key = []byte(key)
		}
		j, err := journal.Open(c)
		if err != nil {
			t.Fatal(err)
		}
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
		if got := collect(); got != want {
			t.Errorf("%q: %v, want %v", key, got, want)
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
	}
}

// A later version of the agent wrote the journal.
func TestCollectJournalOfAnotherVersion(t *testing.T) {
	root := t.TempDir()
	dir := filepath.Join(root, "state", "journal")
	j, err := journal.Open(journal.Config{Dir: dir, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	journaltest.SetVersion(t, dir, 2)
	if got := tree(root).journal(Journal{Dir: "/state/journal"}); got.Sealed != Unknown || !strings.Contains(got.Format, "version 2") {
		t.Errorf("%+v", got)
	}
}
