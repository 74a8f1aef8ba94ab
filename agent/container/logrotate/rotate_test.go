package logrotate

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestNewChecks(t *testing.T) {
	c := newContainer(t)
	good := c.rotator(2).cfg
	for name, change := range map[string]func(*Config){
		"no runtime":    func(c *Config) { c.Reopen = nil },
		"no containers": func(c *Config) { c.Containers = nil },
		"no log":        func(c *Config) { c.Log = nil },
		"one file":      func(c *Config) { c.MaxFiles = 1 },
		"no size":       func(c *Config) { c.MaxSize = 0 },
	} {
		t.Run(name, func(t *testing.T) {
			bad := good
			change(&bad)
			if _, err := New(bad); err == nil {
				t.Error("New succeeded")
			}
		})
	}
}

// There must be as many files as allowed. The last two must be plain, and
// together they must hold the newest lines without a gap.
func TestRotations(t *testing.T) {
	for _, tc := range []struct {
		name      string
		maxFiles  int
		rotations int
		want      []string
		first     int // number of the oldest line that is left
	}{
		{"none", 5, 0, []string{"0.log"}, 0},
		{"one", 5, 1, []string{"0.log", "0.log.20000101-000000"}, 0},
		{"two", 5, 2, []string{"0.log", "0.log.20000101-000000.gz", "0.log.20000101-000100"}, 0},
		{
			"as many as fit", 5, 4,
			[]string{"0.log", "0.log.20000101-000000.gz", "0.log.20000101-000100.gz", "0.log.20000101-000200.gz", "0.log.20000101-000300"}, 0,
		},
		{
			"more", 5, 7,
			[]string{"0.log", "0.log.20000101-000300.gz", "0.log.20000101-000400.gz", "0.log.20000101-000500.gz", "0.log.20000101-000600"}, 300,
		},
		{"two files", 2, 3, []string{"0.log", "0.log.20000101-000200"}, 200},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { // begins with the year 2000
				time.Local = time.UTC
				c := newContainer(t)
				r := c.rotator(tc.maxFiles)
				for range tc.rotations {
					c.write(100)
					if err := r.rotate(t.Context(), "id", c.path); err != nil {
						t.Fatal(err)
					}
					time.Sleep(time.Minute)
				}
				c.write(10)
				if diff := cmp.Diff(tc.want, c.files()); diff != "" {
					t.Errorf("files (-want +got):\n%s", diff)
				}
				if diff := cmp.Diff(c.wanted(tc.first), c.lines()); diff != "" {
					t.Errorf("lines (-want +got):\n%s", diff)
				}
				for _, name := range c.files() {
					info, err := os.Stat(filepath.Join(filepath.Dir(c.path), name))
					if err != nil || info.Mode() != 0o640 {
						t.Errorf("%s: mode %v, %v", name, info.Mode(), err)
					}
				}
			})
		})
	}
}

// If pieces have grown far larger than the limit, fewer are kept, and the older
// ones are removed instead of compressed.
func TestLargePieces(t *testing.T) {
	for _, tc := range []struct {
		name    string
		maxSize int64
		want    []string // after four rotations
	}{
		{"as large as the limit", 5000, []string{"0.log", "0.log.20000101-000000.gz", "0.log.20000101-000100.gz", "0.log.20000101-000200.gz", "0.log.20000101-000300"}},
		{"twice as large", 2500, []string{"0.log", "0.log.20000101-000000.gz", "0.log.20000101-000100.gz", "0.log.20000101-000200.gz", "0.log.20000101-000300"}},
		{"ten times as large", 500, []string{"0.log", "0.log.20000101-000300"}},
		{"no limit of use", math.MaxInt64, []string{"0.log", "0.log.20000101-000000.gz", "0.log.20000101-000100.gz", "0.log.20000101-000200.gz", "0.log.20000101-000300"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				time.Local = time.UTC
				c := newContainer(t)
				r := c.rotator(5)
				r.cfg.MaxSize = tc.maxSize
				for range 4 {
					if err := c.file.Truncate(5000); err != nil {
						t.Fatal(err)
					}
					if err := r.rotate(t.Context(), "id", c.path); err != nil {
						t.Fatal(err)
					}
					time.Sleep(time.Minute)
				}
				if diff := cmp.Diff(tc.want, c.files()); diff != "" {
					t.Errorf("files (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// If the agent was killed before the reopening, the container still writes to
// a piece. That piece is kept however large it is.
func TestLargePieceInUse(t *testing.T) {
	c := newContainer(t)
	if err := c.file.Truncate(1 << 20); err != nil {
		t.Fatal(err)
	}
	move(t, c.path, c.path+".20260101-000000")
	r := c.rotator(5)
	r.cfg.MaxSize = 1000
	if err := r.rotate(t.Context(), "id", c.path); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"0.log", "0.log.20260101-000000"}, c.files()); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
}

func TestOwnerIsKept(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root may give files away")
	}
	c := newContainer(t)
	if err := os.Chown(c.path, 7, 8); err != nil {
		t.Fatal(err)
	}
	r := c.rotator(5)
	for range 2 {
		if err := r.rotate(t.Context(), "id", c.path); err != nil {
			t.Fatal(err)
		}
	}
	i := slices.IndexFunc(c.files(), func(name string) bool { return strings.HasSuffix(name, gzSuffix) })
	info, err := os.Stat(filepath.Join(filepath.Dir(c.path), c.files()[i]))
	if err != nil {
		t.Fatal(err)
	}
	if s := info.Sys().(*syscall.Stat_t); s.Uid != 7 || s.Gid != 8 {
		t.Errorf("owner %d, group %d", s.Uid, s.Gid)
	}
}

// Two rotations in one second, or after the clock was set back, must neither
// overwrite a file nor lose the order.
func TestClockThatStandsOrGoesBack(t *testing.T) {
	c := newContainer(t)
	if err := os.WriteFile(c.path+".20991231-235959", nil, 0o640); err != nil {
		t.Fatal(err)
	}
	r := c.rotator(9)
	for range 3 {
		c.write(5)
		if err := r.rotate(t.Context(), "id", c.path); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{"0.log", "0.log.20991231-235959.gz", "0.log.21000101-000000.gz", "0.log.21000101-000001.gz", "0.log.21000101-000002"}
	if diff := cmp.Diff(want, c.files()); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(c.wanted(0), c.lines()); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
}

func TestReopenFails(t *testing.T) {
	refused := errors.New("refused")
	for _, tc := range []struct {
		name   string
		anyway bool
		files  int
	}{
		{"the log has its name again", false, 1},
		{"a log that was reopened after all stays", true, 2},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := newContainer(t)
			c.write(10)
			c.fail(refused)
			c.anyway = tc.anyway
			if err := c.rotator(5).rotate(t.Context(), "id", c.path); !errors.Is(err, refused) {
				t.Errorf("rotate = %v", err)
			}
			c.write(10)
			if got := c.files(); len(got) != tc.files {
				t.Errorf("files: %q", got)
			}
			if diff := cmp.Diff(c.wanted(0), c.lines()); diff != "" {
				t.Errorf("lines (-want +got):\n%s", diff)
			}
		})
	}
}

// A rotation continues from any state that an interrupted one left.
func TestAfterAKill(t *testing.T) {
	const first, second = ".20260101-000000", ".20260101-000001"
	for _, tc := range []struct {
		name   string
		before func(t *testing.T, c *container)
		lost   string // a name that must be gone
	}{
		{"while compressing", func(t *testing.T, c *container) {
			c.write(10)
			move(t, c.path, c.path+first)
			c.open()
			write(t, c.path+first+tmpSuffix, "torn")
		}, "0.log" + first + tmpSuffix},
		{"before the plain file went", func(t *testing.T, c *container) {
			c.write(10)
			move(t, c.path, c.path+first)
			c.open()
			f, err := openLogDir(filepath.Dir(c.path))
			if err != nil {
				t.Fatal(err)
			}
			defer f.close()
			if err := f.write(t.Context(), "0.log"+first, "0.log"+first+gzSuffix); err != nil {
				t.Fatal(err)
			}
		}, "0.log" + first},
		{"before the reopening", func(t *testing.T, c *container) {
			c.write(10)
			move(t, c.path, c.path+first)
			c.write(10) // still to the old file
		}, "0.log" + first + gzSuffix},
		{"before the reopening, with a log before", func(t *testing.T, c *container) {
			c.write(10)
			move(t, c.path, c.path+first)
			c.open()
			c.write(10)
			move(t, c.path, c.path+second)
			c.write(10)
		}, "0.log" + second + gzSuffix},
	} {
		for _, maxFiles := range []int{3, 9} {
			t.Run(tc.name, func(t *testing.T) {
				c := newContainer(t)
				tc.before(t, c)
				if err := c.rotator(maxFiles).rotate(t.Context(), "id", c.path); err != nil {
					t.Fatal(err)
				}
				c.write(10)
				if slices.Contains(c.files(), tc.lost) || c.reopened() != 1 {
					t.Errorf("files %q, reopened %d times", c.files(), c.reopened())
				}
				if diff := cmp.Diff(c.wanted(0), c.lines()); diff != "" {
					t.Errorf("lines (-want +got):\n%s", diff)
				}
			})
		}
	}
}

// A file that cannot be compressed must not prevent the rotation of the log.
func TestCompressionFails(t *testing.T) {
	c := newContainer(t)
	c.write(10)
	old := c.path + ".20260101-000000"
	move(t, c.path, old)
	c.open()
	c.write(10)
	if err := os.Mkdir(old+tmpSuffix, 0o755); err != nil { // in its way
		t.Fatal(err)
	}
	err := c.rotator(5).rotate(t.Context(), "id", c.path)
	if err == nil || c.reopened() != 1 {
		t.Fatalf("rotate = %v, reopened %d times", err, c.reopened())
	}
	c.write(10)
	if diff := cmp.Diff(c.wanted(0), c.lines()); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
}

// On a full disk nothing is lost, and plain files count like the others.
func TestFullDisk(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root may mount a small disk")
	}
	c := newContainer(t)
	dir := filepath.Join(t.TempDir(), "small")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=256k"); err != nil {
		t.Skip("no small disk can be mounted here: " + err.Error())
	}
	t.Cleanup(func() {
		c.file.Close()
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	c.path = filepath.Join(dir, "0.log")
	c.open()
	r := c.rotator(4)
	c.write(1000)
	if err := r.rotate(t.Context(), "id", c.path); err != nil {
		t.Fatal(err)
	}
	fill, err := os.Create(filepath.Join(dir, "fill"))
	if err != nil {
		t.Fatal(err)
	}
	for block := make([]byte, 4096); err == nil; {
		_, err = fill.Write(block)
	}
	fill.Close()
	for range 6 {
		if err := r.rotate(t.Context(), "id", c.path); err != nil && !errors.Is(err, syscall.ENOSPC) {
			t.Fatal(err)
		}
	}
	if got := c.files(); len(got) != 5 { // with fill
		t.Errorf("files: %q", got)
	}
}

// Files that are not of this log, links and folders stay, and are not
// written to.
func TestStrangersStay(t *testing.T) {
	c := newContainer(t)
	secret := filepath.Join(t.TempDir(), "secret")
	write(t, secret, "secret")
	strangers := []string{"0.log.notes", "0.log.20260101-000000.bak", "10.log.20260101-000000", "0.log.20261399-000000", "0.log.99991231-235959", "1.log"}
	for _, name := range strangers {
		write(t, filepath.Join(filepath.Dir(c.path), name), name)
	}
	if err := os.Symlink(secret, c.path+".20260101-000000"); err != nil {
		t.Fatal(err)
	}
	r := c.rotator(2)
	for range 4 {
		if err := r.rotate(t.Context(), "id", c.path); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range append(strangers, "0.log.20260101-000000") {
		if !slices.Contains(c.files(), name) {
			t.Errorf("%s is gone", name)
		}
	}
	if data, err := os.ReadFile(secret); err != nil || string(data) != "secret" {
		t.Errorf("the link's target: %q, %v", data, err)
	}
}

func move(t *testing.T, from, to string) {
	t.Helper()
	if err := os.Rename(from, to); err != nil {
		t.Fatal(err)
	}
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o640); err != nil {
		t.Fatal(err)
	}
}
