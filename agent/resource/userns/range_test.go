package userns

import (
	"strings"
	"testing"
	"testing/fstest"
)

func TestRange(t *testing.T) {
	const passwd = "root:x:0:0::/root:/bin/sh\nkubelet:x:990:990::/:/sbin/nologin\n"
	for _, tc := range []struct {
		name                   string
		passwd, subuid, subgid string // "-" is no such file
		perPod                 uint32
		first, length          uint32
		bad                    string
	}{
		{name: "no files", passwd: "-", subuid: "-", subgid: "-", first: rangeUnit, length: 1<<32 - rangeUnit},
		{name: "more for each pod", passwd: "-", subuid: "-", subgid: "-", perPod: 4 * rangeUnit, first: 4 * rangeUnit, length: 1<<32 - 4*rangeUnit},
		{name: "others only", passwd: passwd, subuid: "user:100000:65536\n", subgid: "user:100000:65536\n", first: rangeUnit, length: 1<<32 - rangeUnit},
		{name: "by name", passwd: "-", subuid: "user:1:2\n# comment\n\nkubelet:65536:7208960\n", subgid: "kubelet:65536:7208960", first: rangeUnit, length: 110 * rangeUnit},
		{name: "by id", passwd: passwd, subuid: "990:65536:65536\n", subgid: "kubelet:65536:65536\n", first: rangeUnit, length: rangeUnit},
		{name: "id of nobody", passwd: "kubelet\n", subuid: ":65536:65536\n", subgid: "-", first: rangeUnit, length: 1<<32 - rangeUnit},
		{name: "users only", passwd: passwd, subuid: "kubelet:65536:65536\n", subgid: "-", bad: "same single range"},
		{name: "groups differ", passwd: passwd, subuid: "kubelet:65536:65536\n", subgid: "kubelet:131072:65536\n", bad: "[65536:65536] and /etc/subgid has [131072:65536]"},
		{name: "two ranges", passwd: passwd, subuid: "kubelet:65536:65536\n990:262144:65536\n", subgid: "kubelet:65536:65536\n", bad: "same single range"},
		{name: "no number", passwd: passwd, subuid: "kubelet:many:65536\n", subgid: "-", bad: "/etc/subuid"},
		{name: "too large", passwd: passwd, subuid: "kubelet:65536:4294967296\n", subgid: "-", bad: "/etc/subuid"},
		{name: "fields missing", passwd: passwd, subuid: "-", subgid: "kubelet:65536\n", bad: "expected kubelet:FIRST:COUNT"},
		{name: "endless line", passwd: passwd, subuid: strings.Repeat("x", 1<<17), subgid: "-", bad: "/etc/subuid"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			root := fstest.MapFS{}
			for name, content := range map[string]string{"etc/passwd": tc.passwd, "etc/subuid": tc.subuid, "etc/subgid": tc.subgid} {
				if content != "-" {
					root[name] = &fstest.MapFile{Data: []byte(content)}
				}
			}
			first, length, err := Range(root, tc.perPod)
			if (err == nil) != (tc.bad == "") || (err != nil && !strings.Contains(err.Error(), tc.bad)) {
				t.Fatalf("Range = %v, want %q", err, tc.bad)
			}
			if first != tc.first || length != tc.length {
				t.Errorf("Range = %d, %d, want %d, %d", first, length, tc.first, tc.length)
			}
		})
	}
}

func FuzzRange(f *testing.F) {
	f.Add("kubelet:x:990:", "kubelet:65536:65536", "990:65536:65536")
	f.Add("", ":::", "\x00\n#\n:")
	f.Fuzz(func(t *testing.T, passwd, subuid, subgid string) {
		root := fstest.MapFS{
			"etc/passwd": &fstest.MapFile{Data: []byte(passwd)},
			"etc/subuid": &fstest.MapFile{Data: []byte(subuid)},
			"etc/subgid": &fstest.MapFile{Data: []byte(subgid)},
		}
		first, length, err := Range(root, rangeUnit)
		if err != nil {
			return
		}
		// What New takes must fit; nothing may be given to the node's own ids.
		if a, err := New(Config{PodsDir: t.TempDir(), First: first, Length: length}); err == nil {
			if s, err := a.free(); err != nil || s.first < rangeUnit || uint64(s.first)+uint64(s.length) > 1<<32 {
				t.Errorf("range %v, %v", s, err)
			}
		}
	})
}
