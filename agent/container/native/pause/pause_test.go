package pause

import (
	"bytes"
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestProgram(t *testing.T) {
	tests := []struct {
		goarch  string
		machine elf.Machine
		svc     []byte // the system call instruction
	}{
		{"arm64", elf.EM_AARCH64, []byte{0x01, 0x00, 0x00, 0xd4}},
		{"arm", elf.EM_ARM, []byte{0x00, 0x00, 0x00, 0xef}},
		{"amd64", elf.EM_X86_64, []byte{0x0f, 0x05}},
	}
	for _, tt := range tests {
		t.Run(tt.goarch, func(t *testing.T) {
			b, err := Program(tt.goarch)
			if err != nil {
				t.Fatal(err)
			}
			if len(b) > 400 {
				t.Errorf("program has %d bytes", len(b))
			}
			f, err := elf.NewFile(bytes.NewReader(b))
			if err != nil {
				t.Fatal(err)
			}
			if f.Machine != tt.machine || f.Type != elf.ET_EXEC {
				t.Errorf("file is %v %v", f.Machine, f.Type)
			}
			if len(f.Progs) != 1 || f.Progs[0].Filesz != uint64(len(b)) {
				t.Fatalf("segments: %+v", f.Progs)
			}
			off := f.Entry - f.Progs[0].Vaddr
			if off%8 != 0 || off >= uint64(len(b)) {
				t.Fatalf("entry at offset %d", off)
			}
			const calls = 4
			if n := bytes.Count(b[off:], tt.svc); n != calls {
				t.Errorf("%d system calls, want %d", n, calls)
			}
		})
	}
	if _, err := Program("mips"); err == nil {
		t.Error("an unknown architecture was accepted")
	}
}

// TestRun runs the program of this machine: it sleeps, has no zombies, and ends with SIGTERM.
func TestRun(t *testing.T) {
	program, err := Program(runtime.GOARCH)
	if err != nil {
		t.Skip(err)
	}
	path := filepath.Join(t.TempDir(), "pause")
	if err := os.WriteFile(path, program, 0o755); err != nil {
		t.Fatal(err)
	}
	// The shell has a child, and becomes the program.
	cmd := exec.Command("/bin/sh", "-c", "sleep 0.1 & exec "+path)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill() }()
	proc := filepath.Join("/proc", strconv.Itoa(cmd.Process.Pid))
	state := func() string {
		comm, _ := os.ReadFile(filepath.Join(proc, "comm"))
		children, _ := os.ReadFile(filepath.Join(proc, "task", filepath.Base(proc), "children"))
		return strings.TrimSpace(string(comm)) + " " + string(children)
	}
	for range 500 {
		if state() == "pause " {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if got := state(); got != "pause " {
		t.Errorf("the program and its children are %q", got)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("SIGTERM: %v, want exit code 0", err)
	}
}
