package tunables

import (
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// stock are the default values of a kernel.
var stock = map[string]string{
	"sys/vm/overcommit_memory": "0", "sys/vm/panic_on_oom": "0", "sys/kernel/panic": "0", "sys/kernel/panic_on_oops": "0",
	"sys/kernel/keys/root_maxkeys": "1000000", "sys/kernel/keys/root_maxbytes": "20000",
}

func proc(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestParameters(t *testing.T) {
	dir := proc(t, stock)
	err := CheckParameters(dir)
	if err == nil {
		t.Fatal("a stock kernel passes")
	}
	for _, want := range []string{"vm.overcommit_memory is 0: set it to 1", "kernel.panic is 0: set it to 10", "kernel.panic_on_oops", "root_maxbytes is 20000"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not say %q", err, want)
		}
	}
	if lines := strings.Count(err.Error(), "\n") + 1; lines != 4 {
		t.Errorf("%d lines for 4 parameters: %v", lines, err)
	}
	if text, _ := os.ReadFile(dir + "/sys/vm/overcommit_memory"); string(text) != "0\n" {
		t.Errorf("checking has changed it: %q", text)
	}
	var log strings.Builder
	if err := SetParameters(dir, slog.New(slog.NewTextHandler(&log, nil))); err != nil {
		t.Fatal(err)
	}
	if err := CheckParameters(dir); err != nil {
		t.Errorf("after setting: %v", err)
	}
	if n := strings.Count(log.String(), "set kernel parameter"); n != 4 {
		t.Errorf("%d were set: %s", n, log.String())
	}
	log.Reset()
	if err := SetParameters(dir, slog.New(slog.NewTextHandler(&log, nil))); err != nil || log.Len() > 0 {
		t.Errorf("a second time: %v, %s", err, log.String())
	}
}

// TestParametersGoOnAfterErrors: one parameter is missing, one is not a number.
func TestParametersGoOnAfterErrors(t *testing.T) {
	dir := proc(t, stock)
	if err := os.Remove(dir + "/sys/vm/overcommit_memory"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(dir+"/sys/kernel/panic", []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	err := SetParameters(dir, slog.New(slog.DiscardHandler))
	if err == nil || !strings.Contains(err.Error(), "vm.overcommit_memory") || !strings.Contains(err.Error(), "kernel.panic:") {
		t.Errorf("got %v", err)
	}
	if text, err := os.ReadFile(dir + "/sys/kernel/keys/root_maxbytes"); err != nil || string(text) != "25000000" {
		t.Errorf("the last has %q, %v", text, err)
	}
	if err := CheckParameters(dir); err == nil || strings.Contains(err.Error(), "root_maxbytes") {
		t.Errorf("got %v", err)
	}
}

func TestSwapOn(t *testing.T) {
	const head = "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority"
	for text, want := range map[string]bool{"": false, head: false, head + "\n/dev/zram0 partition 131068 0 -2": true} {
		if got, err := SwapOn(proc(t, map[string]string{"swaps": text})); err != nil || got != want {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
	if got, err := SwapOn(t.TempDir()); err != nil || got {
		t.Errorf("no file: %v, %v", got, err)
	}
	dir := t.TempDir()
	if err := os.Mkdir(dir+"/swaps", fs.FileMode(0o755)); err != nil {
		t.Fatal(err)
	}
	if _, err := SwapOn(dir); err == nil {
		t.Error("what cannot be read passes")
	}
}

func TestOpenFilesOnlyRises(t *testing.T) {
	var before, after unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	if err := RaiseOpenFilesLimit(1); err != nil {
		t.Error(err)
	}
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &after); err != nil || after != before {
		t.Errorf("the limit was %+v and is %+v, %v", before, after, err)
	}
	if err := RaiseOpenFilesLimit(before.Max); err != nil {
		t.Error(err)
	}
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &after); err != nil || after.Cur != before.Max || after.Max != before.Max {
		t.Errorf("the limit was %+v and is %+v, %v", before, after, err)
	}
	// More than any kernel allows: what it was stays.
	nr, err := os.ReadFile("/proc/sys/fs/nr_open")
	if err != nil {
		t.Fatal(err)
	}
	limit, err := strconv.ParseUint(strings.TrimSpace(string(nr)), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	if err := RaiseOpenFilesLimit(limit + 1); err == nil || !strings.Contains(err.Error(), "limit of open files") {
		t.Errorf("more than the kernel allows: %v", err)
	}
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &after); err != nil || after.Max != before.Max || after.Cur < before.Cur {
		t.Errorf("the limit was %+v and is %+v, %v", before, after, err)
	}
}
