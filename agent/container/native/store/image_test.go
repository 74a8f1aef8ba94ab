package store

import "testing"

func TestImageIs(t *testing.T) {
	const id, manifest = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef", "sha256:1123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	image := &Image{ID: id, Tags: []string{"docker.io/library/busybox:latest", "docker.io/library/busybox:1"}, Digests: []string{"docker.io/library/busybox@" + manifest}}
	for ref, want := range map[string]bool{
		id: true, id[len("sha256:"):]: true, "busybox": true, "busybox:1": true, "docker.io/busybox": true, "library/busybox:latest": true,
		"busybox@" + manifest: true, "busybox:gone@" + manifest: true, // the tag of a name with a digest is ignored
		"": false, "busybox:2": false, manifest: false, "quay.io/busybox": false, "busybox@" + id: false, "Busy Box": false, id[:20]: false,
	} {
		if got := ImageIs(ref)(image); got != want {
			t.Errorf("%q: %v", ref, got)
		}
	}
}
