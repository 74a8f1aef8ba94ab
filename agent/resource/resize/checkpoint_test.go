package resize_test

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tinylet/tinylet/agent/resource/resize"
)

func allocations() map[types.UID]resize.Allocation {
	return map[types.UID]resize.Allocation{
		"a": resize.FromSpec(newPod(setup("setup", asks("1", "", "", "")), app("main", asks("500m", "64Mi", "1", "128Mi")))),
		"b": resize.FromSpec(newPod(whole(v1.ResourceRequirements{}), app("main", v1.ResourceRequirements{}))),
		"c": resize.FromSpec(newPod(whole(asks("2", "", "", "")))),
	}
}

// sealed returns a document with the correct checksum.
func sealed(version int, pods string) []byte {
	sum := crc32.Checksum([]byte(pods), crc32.MakeTable(crc32.Castagnoli))
	return fmt.Appendf(nil, `{"version":%d,"checksum":%d,"pods":%s}`, version, sum, pods)
}

func TestCheckpoint(t *testing.T) {
	text, err := resize.Encode(allocations())
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"version":1,"checksum":3168286084,"pods":{` +
		`"a":{"containers":{"main":{"requests":{"cpu":"500m","memory":"64Mi"},"limits":{"cpu":"1","memory":"128Mi"}},"setup":{"requests":{"cpu":"1"}}}},` +
		`"b":{"containers":{"main":{}},"pod":{}},"c":{"pod":{"requests":{"cpu":"2"}}}}}`
	if string(text) != want {
		t.Errorf("got  %s\nwant %s", text, want)
	}
	got, err := resize.Decode(text)
	if err != nil {
		t.Fatal(err)
	}
	for uid, a := range allocations() {
		if !got[uid].Equal(a) {
			t.Errorf("pod %s: got %v, want %v", uid, got[uid], a)
		}
	}
	if len(got) != 3 {
		t.Errorf("%d pods", len(got))
	}
	for n := range text {
		if _, err := resize.Decode(text[:n]); !errors.Is(err, resize.ErrDocument) {
			t.Fatalf("torn after %d bytes: %v", n, err)
		}
	}
}

func TestDecodeRefuses(t *testing.T) {
	text, err := resize.Encode(allocations())
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		name string
		text []byte
		want error
	}{
		{"nothing", nil, resize.ErrDocument},
		{"zeros of a lost write", make([]byte, 4096), resize.ErrDocument},
		{"something else", []byte(`{"kind":"Pod"}`), resize.ErrDocument},
		{"a kubelet's", []byte(`{"data":"{}","checksum":1}`), resize.ErrDocument},
		{"one digit is another", bytes.Replace(text, []byte("500m"), []byte("900m"), 1), resize.ErrDocument},
		{"something follows", append(bytes.Clone(text), "{}"...), resize.ErrDocument},
		{"a later version", []byte(`{"version":2,"checksum":"sha256","nodes":{}}`), resize.ErrVersion},
		{"a later version of this form", sealed(2, `{"a":{"cpus":"0-1"}}`), resize.ErrVersion},
		{"a field that is not known", sealed(1, `{"a":{"cpus":"0-1"}}`), resize.ErrDocument},
		{"a quantity that is none", sealed(1, `{"a":{"pod":{"limits":{"cpu":"much"}}}}`), resize.ErrDocument},
		{"an amount that takes minutes", sealed(1, `{"a":{"pod":{"limits":{"cpu":"1e2147483647"}}}}`), resize.ErrDocument},
		{"no pods", []byte(`{"version":1,"checksum":1}`), resize.ErrDocument},
		{"too long", []byte(strings.Repeat(" ", resize.MaxDocument+1)), resize.ErrDocument},
	} {
		t.Run(row.name, func(t *testing.T) {
			if _, err := resize.Decode(row.text); !errors.Is(err, row.want) {
				t.Errorf("got %v, want %v", err, row.want)
			}
		})
	}
}

// A document above the maximum size is not written, since it could not be read.
func TestEncodeRefuses(t *testing.T) {
	p := newPod(app(strings.Repeat("x", resize.MaxDocument), asks("1", "", "", "")))
	if _, err := resize.Encode(map[types.UID]resize.Allocation{"a": resize.FromSpec(p)}); err == nil {
		t.Error("no error")
	}
}

// A pod with an out-of-range amount loses only its own record.
func TestEncodeLeavesOut(t *testing.T) {
	all := allocations()
	all["d"] = resize.FromSpec(newPod(app("main", asks("1e1000", "", "", ""))))
	text, err := resize.Encode(all)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := resize.Decode(text); err != nil || len(got) != 3 {
		t.Errorf("%d pods, error %v", len(got), err)
	}
}

func FuzzDecode(f *testing.F) {
	text, err := resize.Encode(allocations())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text, false)
	f.Add([]byte(`{"a":{"pod":{"limits":{"cpu":"1e9","memory":"-1Ei"}}}}`), true)
	f.Add([]byte(`null`), true)
	f.Fuzz(func(t *testing.T, text []byte, seal bool) {
		if seal {
			text = sealed(1, string(text))
		}
		all, err := resize.Decode(text)
		if err != nil {
			if !errors.Is(err, resize.ErrDocument) && !errors.Is(err, resize.ErrVersion) {
				t.Fatalf("an error of no kind: %v", err)
			}
			return
		}
		again, err := resize.Encode(all)
		if err != nil {
			return // an amount may be written longer than it was read
		}
		back, err := resize.Decode(again)
		if err != nil {
			t.Fatal(err)
		}
		for uid, a := range back {
			if !all[uid].Equal(a) {
				t.Fatalf("pod %q: %v is not %v", uid, a, all[uid])
			}
		}
		use(all)
	})
}

// use runs hostile amounts through all calculations.
func use(all map[types.UID]resize.Allocation) {
	p := newPod(app("main", asks("1", "64Mi", "2", "128Mi")))
	for _, a := range all {
		given := a.Apply(p)
		w := runs(p)
		plan := resize.PlanOf(given, &w)
		_ = plan.Check(resize.Usage{})
		resize.Sort([]resize.Pending{{Pod: p, Allocation: a}, {Pod: given, Allocation: resize.FromSpec(p)}})
		resize.ContainerResources(&given.Spec.Containers[0], new(w.Containers["main"].Actual), nil)
		resize.Decide(given, resize.FromSpec(p), resize.Features{LimitedSwap: true}, func(*v1.Pod) resize.Fit { return resize.Fit{} })
	}
}
