package offline

import (
	"bytes"
	"context"
	"log/slog"
	"maps"
	"regexp"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/tinylet/tinylet/agent/source/objects"
	"github.com/tinylet/tinylet/agent/store/journal"
)

// slow finds quantities that the parser of k8s.io/apimachinery is busy with
// for hours. Whoever can write a value can do worse, and what the server sent
// that parser has read already.
var slow = regexp.MustCompile(`[eE][+-]?[0-9]{3}|[0-9]{100}`)

// FuzzValues puts arbitrary values under arbitrary keys into the journal.
// Nothing may panic, a pod must survive being stored unchanged, and anything
// else must be left in place.
func FuzzValues(f *testing.F) {
	p := everythingPod("a")
	value, err := encode(lasting(p, nil))
	if err != nil {
		f.Fatal(err)
	}
	end, err := encode(succeeded)
	if err != nil {
		f.Fatal(err)
	}
	f.Add("pod/a", value)
	f.Add("pod/b", value)
	f.Add("end/a", end)
	f.Add("pod/a", []byte{1})
	f.Add("pod/a", []byte{})
	for _, k := range []key{{objects.KindConfigMap, "ns", "map"}, {objects.KindClaim, "ns", "claim"}, {objects.KindVolume, "", "volume"},
		{kindServices, "ns", ""}, tokenKey("a", "x/y", 0), {kindBundle, "", "x"}} {
		value, err := encode(essential(newMessage(k.kind)))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(k.String(), value)
	}
	f.Fuzz(func(t *testing.T, name string, value []byte) {
		if name == "" || len(name) > journal.MaxKey || slow.Match(value) {
			t.Skip()
		}
		disk := memory{name: value}
		s := ofMemory(t, disk)
		for _, p := range s.Pods() {
			mustAdmit(t, s, p) // the same may have another encoding
			writes := fill(s)
			if mustAdmit(t, s, p); writes.writes > 0 || len(s.Pods()) != 1 {
				t.Errorf("%d writes, pods %s", writes.writes, uidsOf(s.Pods()))
			}
		}
		if k, ok := parseKey(name); ok {
			if k.String() != name {
				t.Errorf("key %q is %q", name, k)
			}
			_ = s.readJournal(k, newMessage(k.kind)) // any error will do
		}
		for _, uid := range append(s.UIDs(), types.UID("x")) {
			_, _ = s.TerminalStatus(uid) // any answer will do
			must(t, s.Forget(t.Context(), uid))
		}
		if got := ofMemory(t, disk).UIDs(); len(got) != 0 {
			t.Errorf("left %v", got)
		}
	})
}

// memory is a disk that is none.
type memory map[string][]byte

func (m memory) Keys(string) []string { return slices.Sorted(maps.Keys(m)) }

func (m memory) Read(key string) ([]byte, bool, error) {
	value, ok := m[key]
	return bytes.Clone(value), ok, nil
}

func (m memory) Write(changes ...journal.Change) error {
	for _, c := range changes {
		if c.Value == nil {
			delete(m, c.Key)
		} else {
			m[c.Key] = bytes.Clone(c.Value)
		}
	}
	return nil
}

func (memory) Newest() time.Time { return time.Time{} }

func (memory) Unlocked(context.Context) error { return nil }

func (memory) Close() error { return nil }

func ofMemory(t *testing.T, m memory) *Store {
	t.Helper()
	s, err := newStore(Config{Dir: "memory", Log: slog.New(slog.DiscardHandler)}, m)
	if err != nil {
		t.Fatal(err)
	}
	return s
}
