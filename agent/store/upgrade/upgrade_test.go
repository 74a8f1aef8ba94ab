package upgrade

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// script is what runs before each start of the agent.
const script = "../../../buildroot/board/common/rootfs-overlay/usr/libexec/tinylet/trial"

// lab is a directory with an installed binary.
type lab struct {
	*testing.T
	Files
	dir string
}

func newLab(t *testing.T) lab {
	t.Helper()
	dir := t.TempDir()
	l := lab{t, Files{Dir: filepath.Join(dir, "state"), Program: filepath.Join(dir, "bin", "tinylet"), Former: filepath.Join(dir, "libexec", "former"), Running: filepath.Join(t.TempDir(), "running")}, dir}
	if err := os.Mkdir(filepath.Join(dir, "bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	l.write(l.Program, "one")
	return l
}

func (l lab) write(path, text string) string {
	l.Helper()
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
		l.Fatal(err)
	}
	return path
}

func (l lab) replace(text string) {
	l.Helper()
	if err := l.Replace(l.write(filepath.Join(l.dir, "next"), text)); err != nil {
		l.Fatal(err)
	}
}

// start runs what runs before a start, and returns the binary that then starts.
func (l lab) start(args ...string) string {
	l.Helper()
	cmd := exec.Command("sh", append([]string{script}, args...)...)
	cmd.Env = append(os.Environ(), "TINYLET_UPGRADE_STATE="+l.Dir, "TINYLET_UPGRADE_PROGRAM="+l.Program, "TINYLET_UPGRADE_FORMER="+l.Former, "TINYLET_UPGRADE_SECONDS=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		l.Fatalf("trial: %v\n%s", err, out)
	}
	_ = os.Remove(l.Running) // of the former start
	if err := os.Link(l.Program, l.Running); err != nil {
		l.Fatal(err)
	}
	return l.program()
}

func (l lab) program() string {
	l.Helper()
	text, err := os.ReadFile(l.Program)
	if err != nil {
		l.Fatal(err)
	}
	if info, err := os.Stat(l.Program); err != nil || info.Mode().Perm() != 0o755 {
		l.Errorf("the binary has mode %v, %v", info.Mode(), err)
	}
	return string(text)
}

// left returns the names of all files but the binary, next and the state directory's.
func (l lab) left() string {
	l.Helper()
	var names []string
	err := filepath.WalkDir(l.dir, func(path string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() && path != l.Program && e.Name() != "next" {
			names = append(names, e.Name())
		}
		return err
	})
	if err != nil {
		l.Fatal(err)
	}
	return strings.Join(names, " ")
}

func TestNoTrial(t *testing.T) {
	l := newLab(t)
	if got := l.start(); got != "one" || l.OnTrial() || l.left() != "" {
		t.Errorf("%q starts, left are %q", got, l.left())
	}
	if err := l.Confirm(); err != nil || l.left() != "" {
		t.Errorf("Confirm: %v, left are %q", err, l.left())
	}
}

func TestConfirmed(t *testing.T) {
	l := newLab(t)
	l.replace("two")
	if got := l.start(); got != "two" || !l.OnTrial() {
		t.Fatalf("%q starts, on trial: %v", got, l.OnTrial())
	}
	if err := l.Confirm(); err != nil {
		t.Fatal(err)
	}
	for range 5 {
		if got := l.start(); got != "two" || l.OnTrial() || l.left() != "" {
			t.Fatalf("%q starts, left are %q", got, l.left())
		}
	}
}

// A binary that is installed while another one is on trial is not confirmed by that one.
func TestConfirmedByItself(t *testing.T) {
	l := newLab(t)
	l.replace("two")
	l.start()
	l.replace("three")
	if err := l.Confirm(); !errors.Is(err, ErrReplaced) || !l.OnTrial() {
		t.Errorf("Confirm: %v, on trial: %v", err, l.OnTrial())
	}
	for i, want := range []string{"three", "three", "one"} {
		if got := l.start(); got != want {
			t.Fatalf("start %d: %q, want %q", i, got, want)
		}
	}
}

func TestUndone(t *testing.T) {
	l := newLab(t)
	l.replace("two")
	for i, want := range []string{"two", "two", "one", "one"} {
		if got := l.start(); got != want || l.OnTrial() != (want == "two") {
			t.Fatalf("start %d: %q, on trial: %v", i, got, l.OnTrial())
		}
	}
	if got := l.Undone(); !strings.Contains(got, "not confirmed in 2 starts") || l.left() != "undone" {
		t.Errorf("Undone = %q, left are %q", got, l.left())
	}
	l.replace("three")
	if got := l.start(); got != "three" || l.Undone() != "" {
		t.Errorf("%q starts, Undone = %q", got, l.Undone())
	}
}

// A start between the two steps that begin a trial does not delete the present binary's copy.
func TestConfirmBeforeTrial(t *testing.T) {
	l := newLab(t)
	if err := l.keep(); err != nil {
		t.Fatal(err)
	}
	if err := l.Confirm(); err != nil || l.left() != "former" {
		t.Errorf("Confirm: %v, left are %q", err, l.left())
	}
}

// A binary that replaces one on trial does not replace the one that works.
func TestReplacedOnTrial(t *testing.T) {
	l := newLab(t)
	l.replace("two")
	l.start()
	l.replace("three")
	var got []string
	for range 4 {
		got = append(got, l.start())
	}
	if want := "three three one one"; strings.Join(got, " ") != want {
		t.Errorf("starts are %v, want %s", got, want)
	}
}

// Each state that a crash can leave leads to a binary that starts.
func TestCrashes(t *testing.T) {
	for _, tc := range []struct {
		name  string
		state func(l lab)
		want  string // of five starts
	}{
		{"the trial has begun, and the binary is not replaced", func(l lab) {
			if err := l.begin(); err != nil {
				l.Fatal(err)
			}
		}, "one one one one one"},
		{"a torn count", func(l lab) { l.replace("two"); l.write(filepath.Join(l.Dir, "trial"), "") }, "two two one one one"},
		{"a count that is none", func(l lab) { l.replace("two"); l.write(filepath.Join(l.Dir, "trial"), "-1e9\n") }, "two two one one one"},
		{"the former one is back, and the trial has not ended", func(l lab) {
			l.replace("two")
			l.write(filepath.Join(l.Dir, "trial"), "2\n")
			if err := errors.Join(os.Remove(l.Program), os.Link(l.Former, l.Program)); err != nil {
				l.Fatal(err)
			}
		}, "one one one one one"},
		{"confirmed, and the former one is left", func(l lab) {
			l.replace("two")
			if err := os.Remove(filepath.Join(l.Dir, "trial")); err != nil {
				l.Fatal(err)
			}
		}, "two two two two two"},
		{"no former one", func(l lab) {
			l.replace("two")
			if err := os.Remove(l.Former); err != nil {
				l.Fatal(err)
			}
		}, "two two two two two"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := newLab(t)
			tc.state(l)
			var got []string
			for range 5 {
				got = append(got, l.start())
			}
			if strings.Join(got, " ") != tc.want {
				t.Errorf("starts are %v, want %s", got, tc.want)
			}
			if err := l.Confirm(); err != nil {
				t.Error(err)
			}
			if l.OnTrial() || strings.Contains(l.left(), ".new") || strings.Contains(l.left(), "former") {
				t.Errorf("on trial: %v, left are %q", l.OnTrial(), l.left())
			}
		})
	}
}

func TestReplaceFails(t *testing.T) {
	l := newLab(t)
	for name, next := range map[string]string{"no file": filepath.Join(l.dir, "missing"), "a directory": l.dir} {
		if err := l.Replace(next); err == nil {
			t.Errorf("%s is installed", name)
		}
	}
	if got := l.program(); got != "one" || l.OnTrial() || l.left() != "" {
		t.Errorf("the binary is %q, left are %q", got, l.left())
	}
}

func TestWatch(t *testing.T) {
	l := newLab(t)
	hung := exec.Command("sleep", "100")
	if err := hung.Start(); err != nil {
		t.Fatal(err)
	}
	l.start("watch", "0") // no trial: it would end this process group
	l.replace("two")
	l.start("watch", strconv.Itoa(hung.Process.Pid))
	l.start("watch", "2147483647") // no such process
	if err := hung.Wait(); err == nil || !strings.Contains(err.Error(), "killed") {
		t.Errorf("the agent that hangs: %v", err)
	}
}
