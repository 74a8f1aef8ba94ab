package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tinylet/tinylet/board/provision"
)

func TestProvision(t *testing.T) {
	root, boot := t.TempDir(), t.TempDir()
	file := filepath.Join(boot, "tinylet.yaml")
	run := func(args ...string) (string, error) {
		var out bytes.Buffer
		cmd := (&system{root: root}).provision()
		cmd.SetArgs(append(args, "--boot", boot))
		cmd.SetOut(&out)
		err := cmd.ExecuteContext(t.Context())
		return out.String(), err
	}
	for _, step := range []struct{ name, text, says, problem string }{
		{"no file", "", "", ""},
		{"an error", "hostname: A_B\n", "", "hostname: "},
		{"corrected", "hostname: edge\n", "applied", ""},
		{"once more", "hostname: edge\n", "applied", ""},
		{"consumed", "", "", ""},
	} {
		if step.text != "" {
			if err := os.WriteFile(file, []byte(step.text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		out, err := run()
		problem := strings.Join(provision.Problems(root), "\n")
		if (err != nil) != (step.problem != "") || !strings.Contains(out, step.says) || !strings.Contains(problem, step.problem) || step.problem == "" && problem != "" {
			t.Errorf("%s: printed %q, %v; the problem is %q", step.name, out, err, problem)
		}
	}
	if got, err := os.ReadFile(filepath.Join(root, "etc", "hostname")); err != nil || string(got) != "edge\n" {
		t.Errorf("host name %q, %v", got, err)
	}
	bad := filepath.Join(t.TempDir(), "bad.yaml")
	if err := os.WriteFile(bad, []byte("hostname: A_B\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := run("--check", bad); err == nil || !strings.Contains(err.Error(), "hostname: ") {
		t.Errorf("--check: %v", err)
	}
	if got, _ := os.ReadFile(bad); string(got) != "hostname: A_B\n" {
		t.Error("--check changes the file")
	}
}
