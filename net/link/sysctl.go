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

// sysctlRoot is where the settings are. The kernel shows each thread those of
// its own network namespace.
const sysctlRoot = "/proc/sys/net"

// sysctlLimit is longer than any value of the kernel's.
const sysctlLimit = 64 << 10

// Sysctl reads a setting of the calling thread's network namespace, without
// the line's end. The key has its parts between dots, or between slashes where
// an interface's name may have dots: net.ipv4.ip_forward,
// net/ipv4/conf/eth0.1/forwarding. One that does not exist gives
// fs.ErrNotExist.
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

// SetSysctl gives a setting of the calling thread's network namespace a value,
// and writes nothing where it has it. Keys and errors are those of Sysctl.
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
	// What cannot be read may still be written (flush, for one).
	have, err := readSysctl(root, file)
	switch {
	case err == nil && sameValue(have, value):
		return nil
	case err != nil && !errors.Is(err, fs.ErrPermission):
		return err
	}
	// No O_CREATE: what does not exist would look like a want of permission.
	f, err := root.OpenFile(file, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(value + "\n")
	return errors.Join(err, f.Close())
}

// sameValue compares values whose numbers the kernel may separate otherwise.
func sameValue(a, b string) bool { return slices.Equal(strings.Fields(a), strings.Fields(b)) }

// sysctlFile is the file of a key below the root, which it opens.
func sysctlFile(key string) (string, *os.Root, error) {
	path := key
	if !strings.Contains(key, "/") {
		path = strings.ReplaceAll(key, ".", "/")
	}
	file, found := strings.CutPrefix(path, "net/")
	if !found || file == "" {
		return "", nil, errors.New("it is none of the network's, which begin with net")
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
