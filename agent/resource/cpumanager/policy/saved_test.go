package policy

import (
	"bytes"
	"strings"
	"testing"

	"k8s.io/utils/cpuset"
)

const golden = `{"version":1,"crc32c":"af4f72a7","state":{"policy":"static","cpus":"0-3","reserved":"0","pods":{"p":{"a":"1","b":"2-3"}}}}` + "\n"

func TestEncode(t *testing.T) {
	p := policy(t, board(t, "0-3"), "0", Options{})
	if err := p.AllocatePod(podOf("p", asking("a", "1"), asking("b", "2"))); err != nil {
		t.Fatal(err)
	}
	data, err := p.Saved().Encode()
	if want := golden; err != nil || string(data) != want {
		t.Errorf("%s, %v, want %s", data, err, want)
	}
	saved := p.Saved()
	p.Release("p")
	if !Equal(saved.Pods["p"]["a"].Set, cpuset.New(1)) {
		t.Error("the state is not a copy")
	}
}

func TestDecodeRefuses(t *testing.T) {
	whole := golden
	for n := range len(whole) - 1 {
		if _, err := Decode([]byte(whole[:n])); err == nil {
			t.Fatalf("torn after %d bytes, and taken", n)
		}
	}
	for _, row := range []struct{ data, says string }{
		{"", "empty"},
		{strings.Repeat("\x00", 4096), "corrupt or foreign"},
		{strings.Replace(whole, `"0-3"`, `"0-2"`, 1), "checksum mismatch"},
		{whole + whole, "corrupt or foreign"},
		{strings.Replace(whole, `"version":1`, `"version":2`, 1), "version 2"},
		{`{"policyName":"static","defaultCpuSet":"0,2-3","entries":{"p":{"a":"1"}},"checksum":3610638499}`, "missing version"},
		{`{"version":1,"crc32c":"00000000"}`, "decode"},
		{sealed(`{"policy":"static","cpus":"0-9999"}`), "highest is 1023"},
		{sealed(`{"cpus":"0-3"}`), "missing policy"},
		{sealed(`null`), "missing policy"},
		{`null`, "missing version"},
		{`[]`, "corrupt or foreign"},
	} {
		s, err := Decode([]byte(row.data))
		if err == nil || !strings.Contains(err.Error(), row.says) || s.Policy != "" {
			t.Errorf("%.60q: %v, want an error with %q", row.data, err, row.says)
		}
	}
}

func sealed(state string) string {
	return `{"version":1,"crc32c":"` + sumOf([]byte(state)) + `","state":` + state + `}`
}

// FuzzDecode decodes hostile states, and restores a policy from the valid ones.
func FuzzDecode(f *testing.F) {
	f.Add([]byte(golden), false)
	f.Add([]byte(`{"policy":"static","cpus":"0-3","reserved":"0","pods":{"p":{"app":"1","init":"1-2"},"q":{"app":"1"}}}`), true)
	f.Add([]byte(`{"policy":"none","pods":{"p":null,"":{"":""}}}`), true)
	f.Fuzz(func(t *testing.T, data []byte, seal bool) {
		if seal {
			data = []byte(sealed(string(data)))
		}
		saved, err := Decode(data)
		if err != nil {
			return
		}
		one, err := saved.Encode()
		if err != nil {
			t.Fatal(err)
		}
		same, err := Decode(one)
		if err != nil {
			t.Fatalf("%s: %v", one, err)
		}
		if two, err := same.Encode(); err != nil || !bytes.Equal(one, two) {
			t.Fatalf("%s, then %s (%v)", one, two, err)
		}
		in := withInit(podOf("p", asking("app", "1"), asking("b", "1")), asking("init", "2"))
		r, err := Restore(saved, board(t, "0-3"), cpuset.New(0), Options{}, []LivePod{{UID: "p", Pod: in}, {UID: "q"}})
		if err != nil {
			t.Fatal(err)
		}
		if !r.Policy.reserved.IsSubsetOf(r.Policy.SharedPool()) || !r.Policy.exclusive().IsSubsetOf(cpuset.New(1, 2, 3)) {
			t.Fatalf("pool %s, held %v", r.Policy.SharedPool(), holds(r.Policy))
		}
		a, b := r.Policy.assigned["p"], r.Policy.assigned["q"]
		for _, x := range a {
			for _, y := range b {
				if !x.Intersection(y).IsEmpty() {
					t.Fatalf("held twice: %v", holds(r.Policy))
				}
			}
		}
	})
}
