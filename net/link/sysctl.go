package link

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
)

// sysctlRoot is the directory of the network sysctls. Each thread sees those of its
// own network namespace.
const sysctlRoot = "/proc/sys/net"

// sysctlLimit bounds the size of a value, in bytes.
const sysctlLimit = 64 << 10

// Sysctl returns a sysctl of the calling thread's network namespace, without the
// newline. The parts of the key are separated by slashes, because the name of an interface
// may contain dots: net/ipv4/conf/eth0.1/forwarding. fs.ErrNotExist if there is no such
// sysctl.
func Sysctl(key string) (string, error) {
	file, root, err := sysctlFile(key)
	if err != nil {
		return "", fmt.Errorf("read sysctl %s: %w", key, err)
	}
	defer root.Close()
	value, err := readSysctl(root, file)
	if err != nil {
		return "", fmt.Errorf("read sysctl %s: %w", key, err)
	}
	return value, nil
}

// SetSysctl sets a sysctl of the calling thread's network namespace. It does not write
// a value that is set already. Keys and errors are those of Sysctl.
func SetSysctl(key, value string) error {
	if err := setSysctl(key, value); err != nil {
		return fmt.Errorf("set sysctl %s to %.80q: %w", key, value, err)
	}
	return nil
}

func setSysctl(key, value string) error {
	file, root, err := sysctlFile(key)
	if err != nil {
		return err
	}
	defer root.Close()
	// Some sysctls are write-only, such as net.ipv4.route.flush.
	have, err := readSysctl(root, file)
	switch {
	case err == nil && sameValue(have, value):
		return nil
	case err != nil && !errors.Is(err, fs.ErrPermission):
		return err
	}
	// Without O_CREATE: with it, a missing file gives a permission error.
	f, err := root.OpenFile(file, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(value + "\n")
	return errors.Join(err, f.Close())
}

// sameValue compares values. The kernel may separate numbers by other white space.
func sameValue(a, b string) bool { return slices.Equal(strings.Fields(a), strings.Fields(b)) }

// sysctlFile opens sysctlRoot and returns the file of a key relative to it.
func sysctlFile(key string) (string, *os.Root, error) {
	file, found := strings.CutPrefix(key, "net/")
	if !found || file == "" {
		return "", nil, errors.New("not a network sysctl: want the prefix net/")
	}
	root, err := os.OpenRoot(sysctlRoot)
	return file, root, err
}

func readSysctl(root *os.Root, file string) (string, error) {
	f, err := root.Open(file)
	if err != nil {
		return "", err
	}
	defer f.Close()
	value, err := io.ReadAll(io.LimitReader(f, sysctlLimit))
	return strings.TrimSuffix(string(value), "\n"), err
}
