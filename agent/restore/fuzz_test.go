package restore

import (
	"regexp"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tinylet/tinylet/agent/journal"
	"github.com/tinylet/tinylet/agent/object"
)

// slow finds quantities that the parser of k8s.io/apimachinery is busy with
// for hours. Whoever can write a value can do worse, and what the server sent
// that parser has read already.
var slow = regexp.MustCompile(`[eE][+-]?[0-9]{3}|[0-9]{100}`)

// FuzzValues gives the journal a value of anything under any key: nothing
// panics, what is a pod can be kept and is the same, and what is none is left
// alone.
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
	for _, k := range []key{{object.KindConfigMap, "ns", "map"}, {object.KindClaim, "ns", "claim"}, {object.KindVolume, "", "volume"},
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
		dir := t.TempDir()
		s := mustOpen(t, Config{Dir: dir})
		if value == nil {
			value = []byte{}
		}
		must(t, s.journal.Write(journal.Change{Key: name, Value: value}))
		s = reopened(t, s)
		pods := s.Pods()
		unchangedBy := func(p *v1.Pod) {
			before := len(content(t, dir))
			mustAdmit(t, s, p)
			// Another encoding of the same may be replaced once.
			mustAdmit(t, s, p)
			if again := len(content(t, dir)); len(s.Pods()) != 1 || again < before {
				t.Errorf("%d pods, %d bytes of %d", len(s.Pods()), again, before)
			}
		}
		for _, p := range pods {
			unchangedBy(p)
		}
		if k, ok := parseKey(name); ok {
			if k.String() != name {
				t.Errorf("key %q is %q", name, k)
			}
			_ = s.recall(k, newMessage(k.kind)) // any error will do
		}
		for _, uid := range append(s.UIDs(), types.UID("x")) {
			_, _ = s.Ended(uid)
			must(t, s.Forget(t.Context(), uid))
		}
		if got := s.UIDs(); len(got) != 0 {
			t.Errorf("left %v", got)
		}
	})
}
