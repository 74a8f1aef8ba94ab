package criconfig

import (
	"testing"

	v1 "k8s.io/api/core/v1"
)

// The values are those of HashContainer in Kubernetes 1.36.3.
func TestHash(t *testing.T) {
	for _, tc := range []struct{ name, image, want string }{
		{"web", "busybox:1.37", "7abb4888"},
		{"", "", "edd67cc4"},
		{"a", "registry.example.com/x@sha256:abc", "8dc18da8"},
		{"é<>&", "x y", "e964869d"},
		{"fetch", "registry.example.com/fetch:1", "b67ec3d1"},
		{"a\xff", "b", "a6fdaf57"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := &v1.Container{Name: tc.name, Image: tc.image, Command: []string{"of no account"}}
			if got := Hash(c); got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
	}
}
