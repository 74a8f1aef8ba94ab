package image

import (
	"strings"
	"testing"
)

func TestParseName(t *testing.T) {
	sum := strings.Repeat("a1", 32)
	tests := []struct{ in, full, asked string }{
		{"busybox", "docker.io/library/busybox:latest", "busybox:latest"},
		{"busybox:1.36", "docker.io/library/busybox:1.36", "busybox:1.36"},
		{"docker.io/busybox", "docker.io/library/busybox:latest", "docker.io/busybox:latest"},
		{"index.docker.io/busybox:1", "docker.io/library/busybox:1", "index.docker.io/busybox:1"},
		{"library/busybox", "docker.io/library/busybox:latest", "library/busybox:latest"},
		{"someone/thing:v1", "docker.io/someone/thing:v1", "someone/thing:v1"},
		{"a/b/c/d", "docker.io/a/b/c/d:latest", "a/b/c/d:latest"},
		{"registry.k8s.io/pause:3.10", "registry.k8s.io/pause:3.10", "registry.k8s.io/pause:3.10"},
		{"localhost/busybox:1", "localhost/busybox:1", "localhost/busybox:1"},
		{"localhost:5000/busybox", "localhost:5000/busybox:latest", "localhost:5000/busybox:latest"},
		{"localhost:5000", "docker.io/library/localhost:5000", "localhost:5000"},
		{"10.0.0.1:5000/x/y:z", "10.0.0.1:5000/x/y:z", "10.0.0.1:5000/x/y:z"},
		{"[::1]:5000/x", "[::1]:5000/x:latest", "[::1]:5000/x:latest"},
		{"[fe80:0:0::1]/x", "[fe80:0:0::1]/x:latest", "[fe80:0:0::1]/x:latest"},
		{"Host/x", "Host/x:latest", "Host/x:latest"},
		{"EXAMPLE.com/x", "EXAMPLE.com/x:latest", "EXAMPLE.com/x:latest"},
		{"busybox@sha256:" + sum, "docker.io/library/busybox@sha256:" + sum, "busybox@sha256:" + sum},
		{"busybox:1@sha256:" + sum, "docker.io/library/busybox:1@sha256:" + sum, "busybox:1@sha256:" + sum},
		{"a.b/c@sha512:" + sum + sum, "a.b/c@sha512:" + sum + sum, "a.b/c@sha512:" + sum + sum},
		{"a__b/c---d/e.f_g", "docker.io/a__b/c---d/e.f_g:latest", "a__b/c---d/e.f_g:latest"},
		{"a_b.c/x", "a_b.c/x:latest", "a_b.c/x:latest"},
		{"x:_TAG.is-fine", "docker.io/library/x:_TAG.is-fine", "x:_TAG.is-fine"},
		{sum[:63], "docker.io/library/" + sum[:63] + ":latest", sum[:63] + ":latest"},
		{"x:" + strings.Repeat("t", 128), "docker.io/library/x:" + strings.Repeat("t", 128), "x:" + strings.Repeat("t", 128)},
	}
	for _, tt := range tests {
		t.Run(tt.in, func(t *testing.T) {
			n, err := ParseName(tt.in)
			if err != nil {
				t.Fatal(err)
			}
			if n.String() != tt.full {
				t.Errorf("in full: %q, want %q", n, tt.full)
			}
			if got := withDefaultTag(tt.in, n); got != tt.asked {
				t.Errorf("asked for as %q, want %q", got, tt.asked)
			}
		})
	}
}

func TestParseNameRefuses(t *testing.T) {
	sum := strings.Repeat("a1", 32)
	for _, in := range []string{
		"", " ", "busy box", "Busybox", "someone/Thing", "busybox:", "busybox@", "busybox:@sha256:" + sum,
		"busybox:.tag", "busybox:-tag", "busybox:a:b", "x:" + strings.Repeat("t", 129),
		sum, "busybox@sha256:abc", "busybox@sha256:" + strings.ToUpper(sum), "busybox@md5:" + sum[:32],
		"busybox@sha256:" + sum + "@sha256:" + sum, "/busybox", "busybox/", "a//b", "-a", "a-", "a._b", "a___b", "a..b",
		".a/b", "a.b:/c", "a.b:x/c", "-a.b/c", "a-.b/c", "[::1/x", "[]/x", "[::1]x/y", "[::1]:/y", "[xyz]/x",
		"http://example.com/x", "example.com/" + strings.Repeat("p", 256), "bü/x", "x:täg", "a\nb", "a\x00b",
		"${IMAGE}", "../../etc/passwd",
	} {
		t.Run(in, func(t *testing.T) {
			if n, err := ParseName(in); err == nil {
				t.Errorf("accepted as %q", n)
			}
		})
	}
}

func FuzzParseName(f *testing.F) {
	for _, s := range []string{"busybox", "localhost:5000/a/b:c", "[::1]:1/x", "a_b.c/x", "x@sha256:" + strings.Repeat("0", 64)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		n, err := ParseName(s)
		if err != nil {
			return
		}
		again, err := ParseName(n.String())
		if err != nil {
			t.Fatalf("%q is valid but in full as %q it is not: %v", s, n, err)
		}
		if again != n {
			t.Fatalf("%q in full is %q, and that in full is %q", s, n, again)
		}
	})
}
