package board

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var memoryArguments = []string{"cgroup_enable=memory", "cgroup_memory=1", "psi=1"}

func TestAddArguments(t *testing.T) {
	const all = " cgroup_enable=memory cgroup_memory=1 psi=1"
	for _, tc := range []struct{ name, text, want, wrong string }{
		{name: "Raspberry Pi OS", text: "console=serial0,115200 root=PARTUUID=1 rootwait\n", want: "console=serial0,115200 root=PARTUUID=1 rootwait" + all + "\n"},
		{name: "no end of line", text: "rootwait", want: "rootwait" + all + "\n"},
		{name: "CRLF", text: "rootwait\r\n", want: "rootwait" + all + "\n"},
		{name: "spaces at the end", text: "rootwait  \n\n", want: "rootwait" + all + "\n"},
		{name: "some are there", text: "psi=1 cgroup_memory=1 a\n", want: "psi=1 cgroup_memory=1 a cgroup_enable=memory\n"},
		{name: "all are there", text: "psi=1 cgroup_memory=1 cgroup_enable=memory\r\n", want: "psi=1 cgroup_memory=1 cgroup_enable=memory\r\n"},
		{name: "a longer word is another", text: "xpsi=1 psi=10\n", want: "xpsi=1 psi=10" + all + "\n"},
		{name: "disabled", text: "a cgroup_disable=memory b\n", want: "a                       b" + all + "\n"},
		{name: "disabled in a list", text: "cgroup_disable=pids,memory,io b\tcgroup_disable=memory\n", want: "cgroup_disable=pids,io        b\t                     " + all + "\n"},
		{name: "disabled and enabled", text: "cgroup_disable=memory psi=1 cgroup_memory=1 cgroup_enable=memory\n", want: "                      psi=1 cgroup_memory=1 cgroup_enable=memory\n"},
		{name: "nothing is left of it", text: "cgroup_disable=memory\n", want: "                     " + all + "\n"},
		{name: "long ends", text: "a" + strings.Repeat("\n", 100), want: "a" + all + "\n" + strings.Repeat("\n", 100-len(all)-1)},
		{name: "empty", wrong: "empty"},
		{name: "no argument", text: " \r\n", wrong: "empty"},
		{name: "two lines", text: "a\nb\n", wrong: "more than one line"},
		{name: "binary", text: "a\x00b\n", wrong: "control characters"},
		{name: "too long", text: strings.Repeat("a", maxCommandLine+1), wrong: "more than 4096 bytes"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := AddArguments([]byte(tc.text), memoryArguments)
			if tc.wrong != "" {
				if err == nil || !strings.Contains(err.Error(), tc.wrong) {
					t.Fatalf("AddArguments = %q, %v, want an error with %q", got, err, tc.wrong)
				}
				return
			}
			if err != nil || string(got) != tc.want {
				t.Fatalf("AddArguments = %q, %v, want %q", got, err, tc.want)
			}
			again, err := AddArguments(got, memoryArguments)
			if err != nil || string(again) != string(got) {
				t.Errorf("AddArguments of the result = %q, %v", again, err)
			}
		})
	}
}

// FuzzAddArguments checks that no argument but the listed ones comes or goes, and that
// the file never gets shorter.
func FuzzAddArguments(f *testing.F) {
	for _, text := range []string{"a b\n", "cgroup_disable=memory,pids x\r\n", "psi=1", "\n", "a\tb \n\n"} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		got, err := AddArguments(text, memoryArguments)
		if err != nil {
			return
		}
		if len(got) < len(text) {
			t.Fatalf("%q is shorter than %q", got, text)
		}
		left := map[string]int{}
		for _, w := range strings.Fields(string(got)) {
			left[w]++
		}
		for _, w := range strings.Fields(string(text)) {
			if !strings.HasPrefix(w, "cgroup_disable=") && left[w] == 0 {
				t.Fatalf("%q is not in %q", w, got)
			}
		}
		for _, a := range memoryArguments {
			if left[a] == 0 {
				t.Fatalf("%q is not in %q", a, got)
			}
		}
	})
}

func TestAddArgumentsToFile(t *testing.T) {
	dir := t.TempDir()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	if _, err := AddArgumentsToFile(root, "cmdline.txt", memoryArguments); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("without a file: %v", err)
	}
	path := filepath.Join(dir, "cmdline.txt")
	if err := os.WriteFile(path, []byte("rootwait\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, want := range []bool{true, false} {
		if changed, err := AddArgumentsToFile(root, "cmdline.txt", memoryArguments); err != nil || changed != want {
			t.Fatalf("AddArgumentsToFile = %v, %v, want %v", changed, err, want)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil || string(got) != "rootwait cgroup_enable=memory cgroup_memory=1 psi=1\n" {
		t.Fatalf("the file has %q, %v", got, err)
	}
	if err := os.Mkdir(filepath.Join(dir, "folder"), 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := AddArgumentsToFile(root, "folder", memoryArguments); err == nil {
		t.Error("a directory is edited")
	}
}
