// Package tunables sets the kernel parameters that a node needs, as a kubelet does
// (protectKernelDefaults), and the limit of open files. It also reads whether swap
// is on.
package tunables

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// parameter is a kernel parameter and the value that a kubelet requires
// (pkg/kubelet/cm/container_manager_linux.go: setupKernelTunables).
type parameter struct {
	name string
	want int
}

// Memory is overcommitted because cgroups limit pods, and because a large process
// must be able to fork. If memory runs out, the kernel kills a process and does not
// panic. A kernel that panics reboots the machine after 10 s. Each container takes a
// key of the quota of its user. The kernel's default quota is lower than the number of
// containers of a node.
var parameters = []parameter{
	{"vm.overcommit_memory", 1},
	{"vm.panic_on_oom", 0},
	{"kernel.panic", 10},
	{"kernel.panic_on_oops", 1},
	{"kernel.keys.root_maxkeys", 1_000_000},
	{"kernel.keys.root_maxbytes", 25_000_000},
}

func (p *parameter) path(proc string) string {
	return filepath.Join(proc, "sys", strings.ReplaceAll(p.name, ".", "/"))
}

func (p *parameter) read(proc string) (int, error) {
	text, err := os.ReadFile(p.path(proc))
	if err != nil {
		return 0, fmt.Errorf("read kernel parameter %s: %w", p.name, err)
	}
	value, err := strconv.Atoi(string(bytes.TrimSpace(text)))
	if err != nil {
		return 0, fmt.Errorf("read kernel parameter %s: %w", p.name, err)
	}
	return value, nil
}

// CheckParameters returns an error that names every parameter that cannot be read or has
// another value than required. It changes nothing. proc is the mount point of proc(5).
func CheckParameters(proc string) error {
	var errs []error
	for _, p := range parameters {
		switch value, err := p.read(proc); {
		case err != nil:
			errs = append(errs, err)
		case value != p.want:
			errs = append(errs, fmt.Errorf("kernel parameter %s is %d: set it to %d with sysctl -w and in /etc/sysctl.d, or set protectKernelDefaults: false", p.name, value, p.want))
		}
	}
	return errors.Join(errs...)
}

// SetParameters sets every parameter with another value than required. It continues after an
// error, and returns all errors.
func SetParameters(proc string, log *slog.Logger) error {
	var errs []error
	for _, p := range parameters {
		value, err := p.read(proc)
		if err == nil && value != p.want {
			if err = os.WriteFile(p.path(proc), []byte(strconv.Itoa(p.want)), 0o644); err != nil {
				err = fmt.Errorf("set kernel parameter %s from %d to %d: %w", p.name, value, p.want, err)
			} else {
				log.Info("set kernel parameter", "name", p.name, "value", p.want, "before", value)
			}
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// SwapOn reports whether any swap is in use. proc_swaps(5) has one line for each
// swap area below the header.
func SwapOn(proc string) (bool, error) {
	text, err := os.ReadFile(filepath.Join(proc, "swaps"))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil // a kernel without swap
	}
	if err != nil {
		return false, fmt.Errorf("read swap areas: %w", err)
	}
	return bytes.Count(bytes.TrimSpace(text), []byte("\n")) > 0, nil
}

// RaiseOpenFilesLimit raises the limits of open files of this process, soft and hard, to
// count. It never lowers them. If the hard limit cannot be raised, it raises the soft limit
// as far as possible and returns an error.
func RaiseOpenFilesLimit(count uint64) error {
	var have unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &have); err != nil {
		return fmt.Errorf("read limit of open files: %w", err)
	}
	want := unix.Rlimit{Cur: max(have.Cur, count), Max: max(have.Max, count)}
	if want == have {
		return nil
	}
	err := unix.Setrlimit(unix.RLIMIT_NOFILE, &want)
	if err == nil {
		return nil
	}
	// The kernel allows no more than fs.nr_open, and only root may raise the hard
	// limit.
	want.Max = have.Max
	want.Cur = max(have.Cur, min(want.Cur, want.Max))
	return fmt.Errorf("set limit of open files to %d, keep %d: %w", count, want.Cur, errors.Join(err, unix.Setrlimit(unix.RLIMIT_NOFILE, &want)))
}
