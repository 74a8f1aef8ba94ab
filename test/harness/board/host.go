package board

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// hostTools maps each program that boards need on the host to the Debian or
// Ubuntu package that has it.
var hostTools = map[string]string{
	"qemu-system-aarch64": "qemu-system-arm",
	"qemu-system-arm":     "qemu-system-arm",
	"qemu-img":            "qemu-utils",
	"mkfs.ext4":           "e2fsprogs",
	"fakeroot":            "fakeroot",
	"xz":                  "xz-utils",
	"dpkg-deb":            "dpkg",
	"apt-get":             "apt",
	"gpgv":                "gpgv",
	"ip":                  "iproute2",
}

// testTools are those that tests need beside boards; where one is missing, they
// are skipped.
var testTools = map[string]string{
	"swtpm": "swtpm",
	"nft":   "nftables",
}

// HostPackages returns the distribution packages that boards and tests need,
// sorted.
func HostPackages() []string {
	names := []string{"debian-archive-keyring"}
	for _, tools := range []map[string]string{hostTools, testTools} {
		for _, p := range tools {
			names = append(names, p)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// MissingPackages returns those of HostPackages that are not installed, sorted.
func MissingPackages() []string { return missingPackages(hostTools, testTools) }

func missingPackages(lists ...map[string]string) []string {
	var names []string
	for _, tools := range lists {
		for tool, p := range tools {
			if _, err := findTool(tool); err != nil {
				names = append(names, p)
			}
		}
	}
	if _, err := os.Stat(keyring); err != nil {
		names = append(names, "debian-archive-keyring")
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// checkHost returns an error that names what to install, if anything.
func checkHost() error {
	missing := missingPackages(hostTools)
	if len(missing) == 0 {
		return nil
	}
	return errors.New("programs are missing on this machine; install them with: apt-get install --no-install-recommends " +
		strings.Join(missing, " "))
}

// findTool finds a program, also in the folders of the system administrator
// that a normal user's PATH leaves out.
func findTool(name string) (string, error) {
	if p, err := exec.LookPath(name); err == nil {
		return p, nil
	}
	for _, dir := range []string{"/usr/local/sbin", "/usr/sbin", "/sbin"} {
		if p, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
			return p, nil
		}
	}
	return "", fmt.Errorf("program %s: %w", name, exec.ErrNotFound)
}

// run runs a tool in dir and returns its output; on failure the error has the
// end of what the tool said.
func run(ctx context.Context, dir string, env []string, name string, args ...string) ([]byte, error) {
	path, err := findTool(name)
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), env...)
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	if err := cmd.Run(); err != nil {
		if said.Len() == 0 {
			said = out
		}
		return nil, fmt.Errorf("%s: %w: %s", filepath.Base(name), err, tail(said.String(), 1500))
	}
	return out.Bytes(), nil
}

func tail(s string, n int) string {
	s = strings.TrimSpace(s)
	if len(s) > n {
		s = "..." + s[len(s)-n:]
	}
	return s
}
