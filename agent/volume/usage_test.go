package volume

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/tinylet/tinylet/agent/disk"
)

func limited(name, limit string) v1.Volume {
	v := empty(name)
	v.EmptyDir.SizeLimit = ptr(resource.MustParse(limit))
	return v
}

func TestUsage(t *testing.T) {
	outside, mounted := t.TempDir(), mountTmpfs(t, 0, "")
	big := strings.Repeat("x", 1<<20)
	put(t, outside+"/big", big)
	put(t, mounted+"/big", big)
	for _, tc := range []struct {
		name string
		fill func(dir string) error
		over bool
	}{
		{"empty", func(string) error { return nil }, false},
		{"below", func(dir string) error { return os.WriteFile(dir+"/a", []byte(big[:300<<10]), 0o600) }, false},
		{"over", func(dir string) error { return os.WriteFile(dir+"/a", []byte(big), 0o600) }, true},
		{"over by many", func(dir string) error {
			var errs []error
			for i := range 3 {
				errs = append(errs, os.MkdirAll(fmt.Sprintf("%s/%d/x", dir, i), 0o700), os.WriteFile(fmt.Sprintf("%s/%d/x/f", dir, i), []byte(big[:200<<10]), 0o600))
			}
			return errors.Join(errs...)
		}, true},
		{"a hole", func(dir string) error {
			return errors.Join(os.WriteFile(dir+"/a", nil, 0o600), os.Truncate(dir+"/a", 1<<40))
		}, false},
		{"hard links", func(dir string) error {
			errs := []error{os.WriteFile(dir+"/a", []byte(big[:400<<10]), 0o600)}
			for i := range 5 {
				errs = append(errs, os.Link(dir+"/a", fmt.Sprintf("%s/l%d", dir, i)))
			}
			return errors.Join(errs...)
		}, false},
		{"symbolic links", func(dir string) error {
			return errors.Join(os.Symlink(outside, dir+"/d"), os.Symlink(outside+"/big", dir+"/f"))
		}, false},
		{"a mount", func(dir string) error {
			t.Cleanup(func() { _ = unix.Unmount(dir+"/m", unix.MNT_DETACH) })
			return errors.Join(os.Mkdir(dir+"/m", 0o700), unix.Mount(mounted, dir+"/m", "", unix.MS_BIND, ""))
		}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			root := t.TempDir()
			p := podWith("u", limited("a", "512Ki"), empty("b"), memory("m", "1Mi"))
			p.Spec.Volumes = p.Spec.Volumes[:2]
			paths := setUp(t, root, p, Input{}).Paths
			put(t, paths["b"]+"/big", big)
			if err := tc.fill(paths["a"]); err != nil {
				t.Fatal(err)
			}
			over, err := New(root).Usage(t.Context(), p)
			if err != nil || len(over) > 0 != tc.over {
				t.Fatalf("got %v, %v", over, err)
			}
			if !tc.over {
				return
			}
			if want := `Usage of EmptyDir volume "a" exceeds the limit "512Ki".`; over[0].Message() != want || over[0].Used <= 512<<10 {
				t.Errorf("got %s, %d bytes", over[0].Message(), over[0].Used)
			}
		})
	}
}

func TestUsageFails(t *testing.T) {
	root := t.TempDir()
	p := podWith("u", limited("deep", "7Mi"), limited("big", "4Ki"), limited("absent", "1"))
	paths := setUp(t, root, p, Input{}).Paths
	put(t, paths["big"]+"/f", strings.Repeat("x", 100<<10))
	if err := os.Remove(paths["absent"]); err != nil {
		t.Fatal(err)
	}
	at, err := os.OpenRoot(paths["deep"])
	if err != nil {
		t.Fatal(err)
	}
	if err := at.MkdirAll(strings.Repeat("d/", maxLevels+10), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := at.Close(); err != nil {
		t.Fatal(err)
	}
	// A deep tree hides nothing beside it.
	put(t, paths["deep"]+"/aaa", strings.Repeat("x", 8<<20))
	if over, err := New(root).Usage(t.Context(), p); err != nil && !errors.Is(err, disk.ErrDeep) || len(over) != 2 {
		t.Errorf("got %v, %v", over, err)
	}
	put(t, paths["deep"]+"/aaa", "")
	p.Spec.Volumes[0].EmptyDir.SizeLimit = ptr(resource.MustParse("1Gi"))
	over, err := New(root).Usage(t.Context(), p)
	if !errors.Is(err, disk.ErrDeep) || !strings.Contains(err.Error(), `volume "deep"`) {
		t.Errorf("got %v", err)
	}
	if len(over) != 1 || over[0].Volume != "big" {
		t.Errorf("got %v", over)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := New(root).Usage(ctx, p); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if over, err := New(t.TempDir()).Usage(t.Context(), p); err != nil || len(over) > 0 {
		t.Errorf("before set-up: %v, %v", over, err)
	}
}

func TestReadEnvFile(t *testing.T) {
	mountTmpfs(t, 0, "") // skips where mounting is not allowed
	root := t.TempDir()
	p := podWith("u", empty("a"), memory("m", ""), v1.Volume{Name: "h", VolumeSource: v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: "/etc"}}})
	paths := setUp(t, root, p, Input{}).Paths
	dir := paths["a"]
	put(t, dir+"/sub/env", "A=1")
	put(t, dir+"/etc/passwd", "ours")
	put(t, dir+"/full", strings.Repeat("x", maxEnvFile))
	put(t, dir+"/large", strings.Repeat("x", maxEnvFile+1))
	put(t, paths["m"]+"/env", "M=1")
	symlinks(t, dir, map[string]string{"rel": "sub/env", "abs": "/sub/env", "out": "/etc/passwd", "up": "../../../../../../../../etc/passwd", "self": "self", "magic": "/proc/self/environ"})
	if err := errors.Join(unix.Mkfifo(dir+"/fifo", 0o600), unix.Mknod(dir+"/zero", unix.S_IFCHR|0o600, int(unix.Mkdev(1, 5)))); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct{ volume, path, want, fail string }{
		{"a", "sub/env", "A=1", ""},
		{"m", "env", "M=1", ""},
		{"a", "rel", "A=1", ""},
		{"a", "abs", "A=1", ""},
		{"a", "out", "ours", ""},
		{"a", "up", "ours", ""},
		{"a", "full", strings.Repeat("x", maxEnvFile), ""},
		{"a", "large", "", "larger"},
		{"a", "none", "", "no such file"},
		{"a", "magic", "", "no such file"},
		{"a", "self", "", "too many levels"},
		{"a", "sub", "", "not a regular file"},
		{"a", "fifo", "", "not a regular file"},
		{"a", "zero", "", "not a regular file"},
		{"a", "../x", "", "'..'"},
		{"a", "/sub/env", "", "relative"},
		{"a", "", "", "empty"},
		{"h", "passwd", "", "no emptyDir volume"},
		{"x", "env", "", "no emptyDir volume"},
	} {
		t.Run(tc.volume+" "+tc.path, func(t *testing.T) {
			got, err := New(root).ReadEnvFile(p, tc.volume, tc.path)
			switch {
			case tc.fail == "" && (err != nil || string(got) != tc.want):
				t.Errorf("got %.40q, %v", got, err)
			case tc.fail != "" && (err == nil || !strings.Contains(err.Error(), tc.fail)):
				t.Errorf("got %v, want %q", err, tc.fail)
			}
		})
	}
	if _, err := New(root).ReadEnvFile(p, "a", "none"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}
