package userns

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/tinylet/tinylet/agent/config"
	"github.com/tinylet/tinylet/agent/store/atomicfile"
)

func small(dir string) Config { return Config{PodsDir: dir, First: rangeUnit, Length: 4 * rangeUnit} }

func mustNew(t *testing.T, c Config) *Allocator {
	t.Helper()
	a, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func mustGet(t *testing.T, a *Allocator, uid types.UID) uint32 {
	t.Helper()
	ns, err := a.Get(uid)
	if err != nil {
		t.Fatal(err)
	}
	return first(t, ns)
}

// first returns the node's first ID of a valid user namespace.
func first(t *testing.T, ns *runtimeapi.UserNamespace) uint32 {
	t.Helper()
	if ns.GetMode() != runtimeapi.NamespaceMode_POD || len(ns.GetUids()) != 1 || len(ns.GetGids()) != 1 {
		t.Fatalf("namespace %v", ns)
	}
	u, g := ns.GetUids()[0], ns.GetGids()[0]
	if u.GetHostId() != g.GetHostId() || u.GetLength() != g.GetLength() || u.GetContainerId() != 0 || g.GetContainerId() != 0 || u.GetLength() == 0 {
		t.Fatalf("namespace %v", ns)
	}
	return u.GetHostId()
}

func TestConfigIsChecked(t *testing.T) {
	for _, tc := range []struct {
		name string
		c    Config
		want string // "" is valid
	}{
		{"the usual", Config{First: rangeUnit, Length: 1<<32 - rangeUnit, MaxPods: 110}, ""},
		{"just enough", Config{First: 2 * rangeUnit, Length: 4 * rangeUnit, PerPod: 2 * rangeUnit, MaxPods: 2}, ""},
		{"too few", Config{First: 2 * rangeUnit, Length: 4 * rangeUnit, PerPod: 2 * rangeUnit, MaxPods: 3}, "suffice for 2 pods, want 3"},
		{"none", Config{First: rangeUnit}, "suffice for 0 pods, want 1"},
		{"odd number for a pod", Config{First: rangeUnit, Length: rangeUnit, PerPod: 1000}, "multiple of 65536"},
		{"the node's own ids", Config{First: 0, Length: 4 * rangeUnit}, "must be at least 65536"},
		{"odd first id", Config{First: rangeUnit + 1, Length: 4 * rangeUnit}, "multiples"},
		{"odd length", Config{First: rangeUnit, Length: 4*rangeUnit + 1}, "multiples"},
		{"beyond the last id", Config{First: 2 * rangeUnit, Length: 1<<32 - rangeUnit}, "32-bit ID space"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.c.PodsDir = t.TempDir()
			_, err := New(tc.c)
			if (err == nil) != (tc.want == "") || (err != nil && !strings.Contains(err.Error(), tc.want)) {
				t.Errorf("New = %v, want %q", err, tc.want)
			}
		})
	}
	if _, err := New(Config{First: rangeUnit, Length: rangeUnit}); err == nil {
		t.Error("New without a folder succeeded")
	}
}

func TestGetIsStable(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "pods") // made when needed
	a := mustNew(t, small(dir))
	one, two := mustGet(t, a, "one"), mustGet(t, a, "two")
	if one == two || mustGet(t, a, "one") != one {
		t.Errorf("ids %d and %d, then %d", one, two, mustGet(t, a, "one"))
	}
	a = mustNew(t, small(dir))
	if mustGet(t, a, "two") != two || mustGet(t, a, "one") != one {
		t.Error("a restart changes the ids")
	}
	if three := mustGet(t, a, "three"); three == one || three == two {
		t.Error("after a restart, ids are given twice")
	}
	data, err := os.ReadFile(filepath.Join(dir, "one", "userns"))
	want := fmt.Sprintf(`{"uidMappings":[{"hostId":%d,"containerId":0,"length":65536}],"gidMappings":[{"hostId":%d,"containerId":0,"length":65536}]}`, one, one)
	if err != nil || string(data) != want {
		t.Errorf("file %s, %v", data, err)
	}
}

func TestReleaseAndExhaustion(t *testing.T) {
	dir := t.TempDir()
	a := mustNew(t, small(dir))
	var ids []uint32
	for i := range 4 {
		ids = append(ids, mustGet(t, a, types.UID(fmt.Sprint(i))))
	}
	if _, err := a.Get("more"); !errors.Is(err, ErrExhausted) {
		t.Fatalf("Get = %v", err)
	}
	for range 2 {
		if err := a.Release("2"); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "2", "userns")); !os.IsNotExist(err) {
		t.Errorf("the file is still there: %v", err)
	}
	if got := mustGet(t, a, "more"); got != ids[2] {
		t.Errorf("ids %d, want those that were released: %d", got, ids[2])
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if err := a.Release("1"); err != nil {
		t.Errorf("Release without a folder: %v", err)
	}
}

func TestARangeRests(t *testing.T) {
	a := mustNew(t, small(t.TempDir()))
	one := mustGet(t, a, "one")
	if err := a.Release("one"); err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		if mustGet(t, a, types.UID(fmt.Sprint(i))) == one {
			t.Error("ids are another pod's while others are free")
		}
	}
}

func TestBadUIDs(t *testing.T) {
	a := mustNew(t, small(t.TempDir()))
	for _, uid := range []types.UID{"", ".", "..", "../x", "a/b", "a\x00b"} {
		if _, err := a.Get(uid); err == nil {
			t.Errorf("Get(%q) succeeded", uid)
		}
		if err := a.Release(uid); err == nil {
			t.Errorf("Release(%q) succeeded", uid)
		}
	}
}

func TestDamagedFiles(t *testing.T) {
	const both = `{"uidMappings":[%[1]s],"gidMappings":[%[1]s]}`
	good := fmt.Sprintf(both, `{"hostId":131072,"containerId":0,"length":65536}`)
	for _, tc := range []struct {
		name, content string
		taken         int // ranges of four that no other pod may have
		ok            bool
	}{
		{"good", good, 1, true},
		{"the kubelet's, with spaces", "{ \"gidMappings\": [ {\"length\":65536,\"hostId\":131072,\"containerId\":0} ],\n\"uidMappings\": [ {\"length\":65536,\"hostId\":131072,\"containerId\":0} ] }\n", 1, true},
		{"empty", "", 0, false},
		{"torn early", good[:20], 0, false},
		{"torn in the number", good[:27], 0, false},
		{"torn late", good[:len(good)-5], 1, false},
		{"zero bytes", strings.Repeat("\x00", 100), 0, false},
		{"users and groups differ", `{"uidMappings":[{"hostId":131072,"length":65536}],"gidMappings":[{"hostId":262144,"length":65536}]}`, 2, false},
		{"two mappings", fmt.Sprintf(both, `{"hostId":65536,"length":65536},{"hostId":131072,"containerId":65536,"length":65536}`), 2, false},
		{"no mapping", fmt.Sprintf(both, ""), 0, false},
		{"no ids", fmt.Sprintf(both, `{"hostId":131072,"length":0}`), 0, false},
		{"id 0 not mapped", fmt.Sprintf(both, `{"hostId":131072,"containerId":1,"length":65536}`), 1, false},
		{"another length", fmt.Sprintf(both, `{"hostId":131072,"length":131072}`), 2, false},
		{"between two", fmt.Sprintf(both, `{"hostId":131073,"length":65536}`), 2, false},
		{"the node's own ids", fmt.Sprintf(both, `{"hostId":0,"length":65536}`), 0, false},
		{"beyond", fmt.Sprintf(both, `{"hostId":655360,"length":65536}`), 0, false},
		{"all there are", fmt.Sprintf(both, `{"hostId":4294967295,"length":4294967295}`), 0, false},
		{"too large a number", fmt.Sprintf(both, `{"hostId":99999999999,"length":65536}`), 0, false},
		{"too large a file", strings.Repeat(" ", maxFile) + good, 0, false},
	} {
		for _, when := range []string{"before the start", "after the start"} {
			t.Run(tc.name+" "+when, func(t *testing.T) {
				dir := t.TempDir()
				put := func() {
					if err := os.Mkdir(filepath.Join(dir, "pod"), 0o750); err != nil {
						t.Fatal(err)
					}
					if err := os.WriteFile(filepath.Join(dir, "pod", "userns"), []byte(tc.content), 0o600); err != nil {
						t.Fatal(err)
					}
				}
				if when == "before the start" {
					put()
				}
				a := mustNew(t, small(dir))
				if when != "before the start" {
					put()
				}
				ns, err := a.Get("pod")
				if tc.ok != (err == nil) || (err != nil && (!errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), `"pod"`))) {
					t.Fatalf("Get = %v", err)
				}
				if tc.ok && first(t, ns) != 131072 {
					t.Errorf("ids from %d on", first(t, ns))
				}
				got := 0
				for ; err == nil || errors.Is(err, ErrDamaged); got++ {
					_, err = a.Get(types.UID(fmt.Sprint("other", got)))
				}
				if got != 5-tc.taken {
					t.Errorf("%d other pods got ids, want %d", got-1, 4-tc.taken)
				}
				if err := a.Release("pod"); err != nil {
					t.Fatal(err)
				}
				if err := a.Release("other0"); err != nil {
					t.Fatal(err)
				}
				if _, err := a.Get("pod"); err != nil {
					t.Errorf("Get after Release = %v", err)
				}
			})
		}
	}
}

// Two pods with the same IDs must not run at the same time.
func TestTwoPodsWithTheSameIDs(t *testing.T) {
	dir := t.TempDir()
	mustGet(t, mustNew(t, small(dir)), "one")
	if err := os.CopyFS(filepath.Join(dir, "two"), os.DirFS(filepath.Join(dir, "one"))); err != nil {
		t.Fatal(err)
	}
	a := mustNew(t, small(dir))
	for uid, other := range map[types.UID]string{"one": `"two"`, "two": `"one"`} {
		if _, err := a.Get(uid); !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), other) {
			t.Errorf("Get(%q) = %v", uid, err)
		}
	}
}

func TestDiskFails(t *testing.T) {
	dir := t.TempDir()
	a := mustNew(t, small(dir))
	if err := os.WriteFile(filepath.Join(dir, "pod"), nil, 0o600); err != nil { // in the folder's place
		t.Fatal(err)
	}
	for range 9 {
		if _, err := a.Get("pod"); err == nil || errors.Is(err, ErrExhausted) {
			t.Fatalf("Get = %v", err)
		}
	}
	if err := os.Remove(filepath.Join(dir, "pod")); err != nil {
		t.Fatal(err)
	}
	ids := mustGet(t, a, "pod")
	if mustGet(t, mustNew(t, small(dir)), "pod") != ids {
		t.Error("ids that were answered are not on the disk")
	}
}

// The IDs of a pod whose file cannot be read are not given to another pod.
func TestFileThatCannotBeRead(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "pod", "userns")
	if err := os.MkdirAll(file, 0o750); err != nil { // a directory in the file's place
		t.Fatal(err)
	}
	if _, err := New(small(dir)); err == nil || errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), `"pod"`) {
		t.Errorf("New = %v", err)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	mustNew(t, small(dir))
}

// Release before the first Get removes the file of an earlier process: otherwise a later
// Get of another pod would read it, and nothing would release its range again.
func TestReleaseBeforeTheFirstGet(t *testing.T) {
	dir := t.TempDir()
	mustGet(t, mustNew(t, small(dir)), "one")
	l := &Lazy{Config: &config.Config{Paths: config.Paths{Pods: dir}}}
	for range 2 {
		if err := l.Release("one"); err != nil {
			t.Fatal(err)
		}
	}
	if got := mustNew(t, small(dir)).used; len(got) > 0 {
		t.Errorf("%v have ranges", got)
	}
}

// The temporary file of a killed agent does not prevent a write.
func TestKilledWhileWriting(t *testing.T) {
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "pod"), 0o750); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "pod", fileName+atomicfile.Suffix), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	a := mustNew(t, small(dir))
	ids := mustGet(t, a, "pod")
	if mustGet(t, mustNew(t, small(dir)), "pod") != ids {
		t.Error("ids that were answered are not on the disk")
	}
}

// Whatever pods come and go, with restarts between, no two pods share an ID and every
// pod keeps its range.
func TestNoRangeTwice(t *testing.T) {
	for seed := range uint64(20) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		dir := t.TempDir()
		a := mustNew(t, small(dir))
		have := map[types.UID]uint32{}
		for range 60 {
			uid := types.UID(fmt.Sprint(rnd.IntN(6)))
			switch rnd.IntN(5) {
			case 0:
				a = mustNew(t, small(dir))
			case 1:
				if err := a.Release(uid); err != nil {
					t.Fatal(err)
				}
				delete(have, uid)
			default:
				ns, err := a.Get(uid)
				if errors.Is(err, ErrExhausted) && len(have) == 4 {
					continue
				}
				if err != nil {
					t.Fatal(err)
				}
				if old, ok := have[uid]; ok && old != first(t, ns) {
					t.Fatalf("seed %d: pod %s has %d, then %d", seed, uid, old, first(t, ns))
				}
				have[uid] = first(t, ns)
			}
			owners := map[uint32]types.UID{}
			for uid, ids := range have {
				if other, ok := owners[ids]; ok {
					t.Fatalf("seed %d: pods %s and %s have ids %d", seed, uid, other, ids)
				}
				owners[ids] = uid
			}
		}
	}
}

func FuzzDecode(f *testing.F) {
	data, err := encode(span{131072, rangeUnit})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Add(data[:40])
	f.Add([]byte(`{"uidMappings":[{"hostId":4294967295,"length":4294967295},{"hostId":1,"length":1}],"gidMappings":null}`))
	f.Add([]byte(`"hostId": 1 "hostId":22`))
	f.Fuzz(func(t *testing.T, data []byte) {
		spans, err := decode(data, rangeUnit)
		if err == nil && (len(spans) != 1 || spans[0].length == 0) {
			t.Fatalf("spans %v", spans)
		}
		a := &Allocator{cfg: Config{First: rangeUnit, Length: 8 * rangeUnit, PerPod: rangeUnit}, used: map[types.UID]record{"x": {spans: spans}}}
		if s, err := a.free(); err == nil && overlap(spans, []span{s}) {
			t.Errorf("%v is free beside %v", s, spans)
		}
	})
}
