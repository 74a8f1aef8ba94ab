package config

import (
	"strings"
	"testing"

	"github.com/tinylet/tinylet/agent/config/evictionapi"
)

// The default memory threshold depends on the machine's memory. It is part of the
// effective configuration, so that all its readers agree.
func TestThresholdOfTheMachine(t *testing.T) {
	for _, tc := range []struct {
		name, base string
		dropIns    []string
		memory     int64
		want       string
	}{
		{name: "small board", memory: 220 << 20, want: "16Mi"},
		{name: "server", memory: 8 << 30, want: "100Mi"},
		{name: "not known", want: "100Mi"},
		{name: "set", base: "evictionHard: {memory.available: 7Mi}", memory: 220 << 20, want: "7Mi"},
		{name: "another is set", base: "evictionHard: {pid.available: 5%}", memory: 220 << 20, want: ""},
		{name: "merged", base: "mergeDefaultEvictionSettings: true\nevictionHard: {pid.available: 5%}", memory: 220 << 20, want: "16Mi"},
		{name: "another in a drop-in", dropIns: []string{kubeletHead + "evictionHard: {pid.available: 5%}"}, memory: 220 << 20, want: "16Mi"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var files []file
			for _, text := range tc.dropIns {
				files = append(files, file{"/etc/d/1.conf", []byte(text)})
			}
			cfg, _, err := newFlags(t).build(&file{"/etc/c.yaml", []byte(kubeletHead + tc.base)}, files, hostname, tc.memory)
			if err != nil {
				t.Fatal(err)
			}
			if got := cfg.Kubelet.EvictionHard[evictionapi.MemoryAvailable.String()]; got != tc.want {
				t.Errorf("%q, want %q", got, tc.want)
			}
			if err := Validate(cfg); err != nil {
				t.Error(err)
			}
		})
	}
}

// A file that is made for larger boards starts on a small one, with a warning.
func TestThresholdsOfAnotherMachine(t *testing.T) {
	for _, tc := range []struct{ name, base, want string }{
		{"none", "", ""},
		{"more than there is", "evictionHard: {memory.available: 300Mi}", "not below machine memory"},
		{"soft without grace, more than there is", "evictionSoft: {memory.available: 300Mi}\nevictionSoftGracePeriod: {memory.available: 0s}", "not below machine memory: field=evictionSoft[memory.available]"},
		{"soft below hard", "evictionHard: {memory.available: 30Mi}\nevictionSoft: {memory.available: 20Mi}\nevictionSoftGracePeriod: {memory.available: 1m}", "has no effect"},
		{"soft above hard", "evictionHard: {memory.available: 30Mi}\nevictionSoft: {memory.available: 40Mi}\nevictionSoftGracePeriod: {memory.available: 1m}", ""},
	} {
		cfg, warnings, err := newFlags(t).build(&file{"/etc/c.yaml", []byte(kubeletHead + tc.base)}, nil, hostname, 220<<20)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, w := range warnings {
			if strings.Contains(w.Message, "evict") {
				got = append(got, w.Message+": "+w.Attrs[0].String())
			}
		}
		if text := strings.Join(got, "; "); len(got) > 1 || tc.want == "" && text != "" || !strings.Contains(text, tc.want) {
			t.Errorf("%s: warnings %q", tc.name, text)
		}
		if err := Validate(cfg); err != nil {
			t.Errorf("%s: %v", tc.name, err)
		}
	}
}
